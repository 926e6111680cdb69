// SPDX-License-Identifier: Apache-2.0
//
// What runs in the stream: the collectives and point-to-point messages of one group.
//
// Every reduction is made in rank order, by one rank for all: results are bit by bit the same on
// all ranks and in all runs. All data goes directly from the rank that has it to those that need
// it.
#pragma once

#include <atomic>
#include <vector>

#include "fabric.h"
#include "task.h"

namespace railyard::emulator {

/// Runs one collective. REQUIRES: its count is not 0.
ncclResult_t run_collective(const Task& task, Fabric& fabric, const std::atomic<bool>& aborted);

/// What this rank sent.
struct Traffic {
  struct Count {
    uint64_t bytes = 0;
    uint64_t messages = 0;
  };
  Count internode;
  Count intranode;
  Count self;
};

/// Runs sends and receives, which progress independently of one another, and adds to `traffic`.
/// REQUIRES: check_self(tasks).
ncclResult_t run_point_to_point(const std::vector<Task>& tasks, Fabric& fabric,
                                const std::atomic<bool>& aborted, Traffic* traffic);

/// ncclInvalidUsage unless the messages of `rank` to itself pair up.
ncclResult_t check_self(const std::vector<Task>& tasks, int rank);

}  // namespace railyard::emulator
