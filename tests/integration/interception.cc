// SPDX-License-Identifier: Apache-2.0
//
// One rank of a scenario: an NCCL program like any other, which knows nothing of what is preloaded.
//
//   emulate --nodes 2 --gpus 2 -- interception nested
#include <cstdio>
#include <cstring>

#include "job.h"

int main(int argc, char** argv) {
  if (argc == 2) {
    for (const auto* scenarios : {&integration::kTraffic, &integration::kLife,
                                  &integration::kFamily, &integration::kProcesses}) {
      for (const integration::Scenario& scenario : *scenarios) {
        if (std::strcmp(scenario.name, argv[1]) != 0) continue;
        if (std::strcmp(argv[1], "forked_ranks") == 0) {
          return integration::run_in_child(scenario, 3);
        }
        integration::Job job(3);
        scenario.run(job);
        return 0;
      }
    }
  }
  std::fprintf(stderr, "usage: interception SCENARIO\n");
  return 2;
}
