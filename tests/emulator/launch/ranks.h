// SPDX-License-Identifier: Apache-2.0
//
// Runs the ranks of a job as child processes and sees to it that none outlives the job.
//
// Every rank leads a process group of its own and dies with the launcher. Whatever a rank starts
// and leaves behind becomes a child of the launcher and is killed with the rank's group at the end.
// Signals that the launcher gets are passed on to all ranks.
//
// Single-threaded; one job per process, since it blocks signals and becomes a subreaper.
#pragma once

#include <string>
#include <vector>

namespace railyard::emulator {

struct RankProgram {
  int rank;
  int node;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value", complete
  int network = -1;                      ///< namespace to run in; -1: the launcher's
};

struct JobOptions {
  bool tag_output = false;  ///< lines of the ranks begin with "[rank] "
  double timeout_s = 0;     ///< 0: no limit
};

constexpr int kTimedOut = 124;
constexpr int kCannotStart = 127;

/// Starts all ranks and waits for them. Returns 0 if all returned 0; else the status of the first
/// that failed (128 + signal if killed by one), having stopped the others; kTimedOut if the
/// time was up.
int run_job(const std::vector<RankProgram>& programs, const JobOptions& options);

}  // namespace railyard::emulator
