// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <array>

#include <CLI/CLI.hpp>

#include "error.h"

namespace alltoall {
namespace {

struct Type {
  const char* name;
  ncclDataType_t type;
  uint64_t bytes;
};

constexpr std::array kTypes = {
    Type{"int8", ncclInt8, 1},         Type{"uint8", ncclUint8, 1}, Type{"int32", ncclInt32, 4},
    Type{"uint32", ncclUint32, 4},     Type{"int64", ncclInt64, 8}, Type{"uint64", ncclUint64, 8},
    Type{"half", ncclHalf, 2},         Type{"float", ncclFloat, 4}, Type{"double", ncclDouble, 8},
    Type{"bfloat16", ncclBfloat16, 2},
};

const Type& find(const std::string& name) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                         [&name](const Type& type) { return name == type.name; });
  return found == kTypes.end() ? kTypes[0] : *found;
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const Type& type : kTypes) names.emplace_back(type.name);
  return names;
}

void add_options(CLI::App* app, Options* o, std::string* pattern) {
  const auto size = CLI::AsSizeValue(false);
  app->add_option("-b,--minbytes", o->min_bytes, "Smallest size, as in 64K")->transform(size);
  app->add_option("-e,--maxbytes", o->max_bytes, "Largest size")->transform(size);
  app->add_option("-i,--stepbytes", o->step_bytes, "Add this much from size to size")
      ->transform(size);
  app->add_option("-f,--stepfactor", o->factor, "Or multiply by this")
      ->check(CLI::Range(1.001, 1e6))
      ->capture_default_str();
  app->add_option("-n,--iters", o->iterations, "Timed exchanges of each size")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app->add_option("-w,--warmup_iters", o->warmup, "Exchanges before them")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app->add_option("-c,--check", o->check, "1: compare every byte received, in one more exchange")
      ->capture_default_str();
  app->add_option("-t,--nthreads", o->threads, "Threads of a process")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("-g,--ngpus", o->gpus, "GPUs of a thread")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("-d,--datatype", o->type, "Type of the elements")
      ->check(CLI::IsMember(type_names()))
      ->capture_default_str();
  app->add_option("--pattern", *pattern, "uniform, random, zipf:S, hot:K, stride:K or sparse:P")
      ->capture_default_str();
  app->add_flag("--messages", o->messages,
                "Grouped ncclSend and ncclRecv also for uniform (else ncclAlltoAll)");
  app->add_option("--seed", o->seed, "Of random patterns and of contents")->capture_default_str();
  app->add_option("--json", o->json, "File for the results");
  app->add_option("--expect", o->expect,
                  "Fail if another one carried messages between nodes: nccl or railyard")
      ->check(CLI::IsMember({"nccl", "railyard"}));
  app->add_option("--join-timeout", o->join_timeout_s, "Seconds that ranks wait for each other")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
}

constexpr const char* kFooter =
    "size is what a rank sends in one exchange, itself included (on average, with random and\n"
    "sparse): uniform sends size/ranks to each; random between 0 and twice that; zipf:S by\n"
    "popularity, 1/k^S for the k-th rank of a random order; hot:K size/K to each of the first K\n"
    "ranks; stride:K even shares to the ranks with the same number modulo K; sparse:P size/ranks "
    "with probability P.\n"
    "time is that of the slowest rank, the median of the iterations, each begun together;\n"
    "algbw = size / time; busbw = algbw * (ranks - 1) / ranks. Out of place.\n"
    "Start one process per GPU with torchrun, mpirun or srun.";

}  // namespace

ncclDataType_t Options::data_type() const { return find(type).type; }
uint64_t Options::type_bytes() const { return find(type).bytes; }

bool parse(int argc, char** argv, Options* options, int* status) {
  CLI::App app{"Measures all-to-all exchanges of NCCL, even and uneven."};
  std::string pattern = "uniform";
  add_options(&app, options, &pattern);
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *status = app.exit(error) == 0 ? 0 : moe::kExitUsage;
    return false;
  }
  const auto parsed = Pattern::parse(pattern);
  if (!parsed) {
    moe::fail_usage(
        "--pattern must be uniform, random, zipf:S with 0 <= S <= 10, hot:K or stride:K with a "
        "whole K "
        ">= 1, or sparse:P with 0 <= P <= 1; got " +
        pattern);
  }
  options->pattern = *parsed;
  if (options->max_bytes < options->min_bytes) {
    moe::fail_usage("-e must not be below -b: there is no size between them");
  }
  if (options->step_bytes > 0 && app.count("-f") == 0) options->factor = 0;
  return true;
}

}  // namespace alltoall
