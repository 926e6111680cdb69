// SPDX-License-Identifier: Apache-2.0
//
// Random exchanges over NCCL, every byte of them checked. An ordinary NCCL program: started by a
// launcher as one process per rank, or with --threads N as N ranks in threads of one process.
//
//   exchange_fuzz --seed 7 --exchanges 20 [--threads 5]
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <cuda_runtime_api.h>

#include "rank.h"
#include "rendezvous.h"
#include "require.h"

namespace property {
namespace {

int number_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) fail(std::string(name) + " is not set; use a launcher or --threads");
  return std::atoi(text);
}

void run_as_process(const Options& options) {
  const int rank = number_from_environment("RANK");
  const int ranks = number_from_environment("WORLD_SIZE");
  REQUIRE(cudaSetDevice(number_from_environment("LOCAL_RANK")));
  Rank(options, rank, ranks, [=](std::vector<ncclUniqueId>& ids) {
    share_between_processes(rank, ranks, ids);
  }).run();
}

void run_as_threads(const Options& options, int ranks) {
  ThreadRendezvous rendezvous;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      REQUIRE(cudaSetDevice(rank));
      Rank(options, rank, ranks, [&rendezvous, rank](std::vector<ncclUniqueId>& ids) {
        rendezvous.share(rank, ids);
      }).run();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace property

int main(int argc, char** argv) {
  property::Options options;
  int threads = 0;
  CLI::App app{"Random NCCL exchanges, checked byte by byte"};
  app.add_option("--seed", options.seed, "All choices follow from it");
  app.add_option("--exchanges", options.exchanges, "How many");
  app.add_option("--message-bytes", options.limits.message_bytes, "Largest message");
  app.add_option("--exchange-bytes", options.limits.exchange_bytes, "Most bytes per exchange");
  const std::map<std::string, property::Captures> captures{{"none", property::Captures::kNone},
                                                           {"whole", property::Captures::kWhole},
                                                           {"all", property::Captures::kAll}};
  app.add_option("--captures", options.limits.captures, "Exchanges that some ranks capture")
      ->transform(CLI::CheckedTransformer(captures));
  app.add_option("--threads", threads, "Ranks, all in this process, one per device");
  app.add_option("--report", options.report, "File to append what was sent to");
  app.add_flag("--spoil", options.spoil, "Change a received byte: the check must see it");
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) {
    property::run_as_threads(options, threads);
  } else {
    property::run_as_process(options);
  }
  return 0;
}
