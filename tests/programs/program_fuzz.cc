// SPDX-License-Identifier: Apache-2.0
//
// Random NCCL programs, every byte of them checked. An ordinary NCCL program, started by a launcher
// as one process per rank:
//
//   program_fuzz --seed 7 --programs 10 --nodes 0,0,1 --report FILE
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <cuda_runtime_api.h>

#include "interpreter.h"
#include "rendezvous.h"
#include "require.h"

namespace {

int number_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) property::fail(std::string(name) + " is not set; use a launcher");
  return std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seed = 1;
  int count = 1;
  bool spoil = false;
  std::string report = "/dev/null";
  programs::Place place;
  CLI::App app{"Random NCCL programs, checked byte by byte"};
  app.add_option("--seed", seed, "Of the first program; the others follow");
  app.add_option("--programs", count, "How many");
  app.add_option("--nodes", place.node_of, "Node of each rank")->delimiter(',')->required();
  app.add_option("--report", report, "File to append what was received to");
  app.add_flag("--spoil", spoil, "Change a received byte: the check must see it");
  CLI11_PARSE(app, argc, argv);

  place.rank = number_from_environment("RANK");
  place.ranks = number_from_environment("WORLD_SIZE");
  if (place.node_of.size() != static_cast<size_t>(place.ranks)) {
    property::fail("--nodes must name the node of each of the " + std::to_string(place.ranks) +
                   " ranks");
  }
  REQUIRE(cudaSetDevice(number_from_environment("LOCAL_RANK")));
  std::FILE* const file = std::fopen(report.c_str(), "a");
  if (file == nullptr) property::fail("cannot write to " + report);
  std::setvbuf(file, nullptr, _IOLBF, 1 << 12);  // whole lines: all ranks write to it

  std::vector<std::vector<ncclUniqueId>> ids;
  std::vector<ncclUniqueId> all;
  for (int i = 0; i < count; ++i) {
    const auto program = programs::generate(seed + static_cast<uint64_t>(i), place.ranks);
    ids.emplace_back(static_cast<size_t>(program.unique_ids));
    for (ncclUniqueId& id : ids.back()) {
      if (place.rank == 0) REQUIRE(ncclGetUniqueId(&id));
      all.push_back(id);
    }
  }
  property::share_between_processes(place.rank, place.ranks, all);
  auto next = all.begin();
  for (int i = 0; i < count; ++i) {
    for (ncclUniqueId& id : ids[static_cast<size_t>(i)]) id = *next++;
    programs::Interpreter(seed + static_cast<uint64_t>(i), place, file)
        .run(ids[static_cast<size_t>(i)], spoil);
  }
  std::fclose(file);
  // Ids live as long as the process that made them: rank 0 stays until nobody needs one any more.
  property::share_between_processes(place.rank, place.ranks, all);
  return 0;
}
