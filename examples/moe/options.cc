// SPDX-License-Identifier: Apache-2.0
// Parses and judges the command line.
#include "options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "error.h"
#include "model.h"

namespace moe {
namespace {

constexpr Index kMega = Index{1} << 20;

void add_model_options(CLI::App& app, ModelConfig& model) {
  // The bounds keep every size in the program far from overflow.
  const auto up_to = [](int log2) { return CLI::Range(1, 1 << log2); };
  app.add_option("--experts", model.experts, "Experts per layer in the whole job, 0: two per rank")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--layers", model.layers, "Layers of attention and experts")->check(up_to(10));
  app.add_option("--width", model.width, "Width of a token")->check(up_to(16));
  app.add_option("--hidden", model.hidden, "Width inside an expert")->check(up_to(16));
  app.add_option("--heads", model.heads, "Attention heads; must divide the width")
      ->check(up_to(10));
  app.add_option("--sequence", model.length, "Bytes of a sequence")->check(up_to(14));
  app.add_option("--batch", model.batch, "Sequences per rank and step")->check(up_to(14));
  app.add_option("--balance", model.balance_weight, "Weight of the load-balancing loss")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", model.seed, "All randomness comes from it");
}

void add_run_options(CLI::App& app, Options& options) {
  app.add_option("--steps", options.steps, "Steps of training")->check(CLI::Range(1, 1 << 30));
  app.add_option("--learning-rate", options.learning_rate, "Of Adam")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Rank 0 writes all figures to this file");
  app.add_option("--store-port", options.store_port,
                 "TCP port on which rank 0 meets the others, 0: MASTER_PORT, or the one after it "
                 "under torchrun, or 29500");
  app.add_option("--join-timeout", options.join_timeout_s, "Seconds the ranks wait to meet")
      ->check(CLI::Range(1, 86400));
  app.add_option("--memory-mb", options.memory_mb,
                 "Memory each rank may use for parameters, 0: half of its share of the node's")
      ->check(CLI::Range(0, 1 << 30));
}

Index sum_of_sizes(const std::vector<ParameterSpec>& specs) {
  Index sum = 0;
  for (const ParameterSpec& spec : specs) sum += spec.size;
  return sum;
}

Index memory_of_rank(const Options& options, const LaunchEnvironment& launch) {
  if (options.memory_mb > 0) return options.memory_mb * kMega;
  const Index node = static_cast<Index>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return node / 2 / launch.local_ranks;
}

}  // namespace

Parsed parse_options(int argc, char** argv, Options& options) {
  CLI::App app(
      "Trains a byte-level mixture-of-experts language model, its experts spread over the ranks of "
      "a job.\nStart it by torchrun, mpirun or srun, one rank per GPU, or alone as a job of one "
      "rank.",
      "moe_train");
  app.add_option("--data", options.data, "Text files to learn from, read as bytes")->required();
  // What is given again replaces what came before.
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  add_run_options(app, options);
  add_model_options(app, options.model);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return Parsed::kDone;
  } catch (const CLI::ParseError& error) {
    fail_usage(std::string(error.what()) + "; --help lists the options");
  }
  if (options.model.width % options.model.heads != 0) {
    fail_usage("--heads " + std::to_string(options.model.heads) + " does not divide --width " +
               std::to_string(options.model.width) + ": choose heads that do");
  }
  return Parsed::kRun;
}

Index fit_experts(const Options& options, const LaunchEnvironment& launch) {
  ModelConfig model = options.model;
  if (model.experts == 0) model.experts = Index{2} * launch.ranks;
  const std::string wish = "--experts " + std::to_string(model.experts);
  const std::string ranks = std::to_string(launch.ranks) + (launch.ranks == 1 ? " rank" : " ranks");
  if (model.experts < launch.ranks || model.experts % launch.ranks != 0) {
    fail_usage(wish + " cannot be spread evenly over " + ranks + ": choose a multiple of " +
               std::to_string(launch.ranks));
  }
  if (model.experts < kChoices) {
    fail_usage(wish + " is too few: every token goes to " + std::to_string(kChoices));
  }
  const Index memory = memory_of_rank(options, launch);
  const Index per_expert =
      sum_of_sizes(expert_specs(model, 0, 1)) * ParameterStore::kBytesPerParameter;
  const Index shared = sum_of_sizes(shared_specs(model)) * ParameterStore::kBytesPerParameter;
  const Index local = model.experts / launch.ranks;
  const Index most = std::max<Index>(0, (memory - shared) / per_expert);
  if (local > most) {
    const double needed =
        static_cast<double>(local) * static_cast<double>(per_expert) + static_cast<double>(shared);
    fail_usage(wish + " is more than " + ranks + " can hold: " + std::to_string(local) +
               " on each take " +
               std::to_string(static_cast<Index>(needed / static_cast<double>(kMega))) +
               " MB, and a rank may use " + std::to_string(memory / kMega) + " MB, enough for " +
               std::to_string(most) + "; take at most " + std::to_string(most * launch.ranks) +
               " experts, more ranks, a smaller model, or raise --memory-mb");
  }
  return model.experts;
}

}  // namespace moe
