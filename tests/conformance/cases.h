// SPDX-License-Identifier: Apache-2.0
//
// The table of cases. A case is a function that all ranks of a job run, with the rows of rows.txt
// that it stands for and the layouts in which it is to run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trial.h"

namespace conformance {

/// Clusters; the driver knows what they look like.
enum Layout : unsigned {
  kProcesses = 1,     ///< two nodes of three and two ranks, a process each: taken over
  kThreads = 2,       ///< the same as threads of one process
  kThreeNodes = 4,    ///< processes on nodes of two, three and one
  kOneNode = 8,       ///< left to NCCL
  kOnePerNode = 16,   ///< left to NCCL
  kPointers = 32,     ///< two nodes of two and one, with NCCL_CHECK_POINTERS=1
  kNonblocking = 64,  ///< two nodes of two and one, with NCCL_COMM_BLOCKING=0
  kVersions = 128,    ///< two nodes of two and one, with each NCCL that has what it needs
};

enum Traits : unsigned {
  kAll = 0,        ///< a preloaded library carries all messages where it carries any
  kShared = 1,     ///< some of the communicators stay with NCCL
  kLate = 4,       ///< counted with all other late cases of a run; these come last
  kUncounted = 2,  ///< how many messages are carried is a matter of chance, as in an abort
};

struct Case {
  std::string name;
  std::vector<const char*> rows;
  unsigned layouts = kProcesses;
  std::function<void(Trial&)> run;
  int since = 21200;  ///< version code of the first NCCL that has all it needs
  unsigned traits = kAll;
};

using Cases = std::vector<Case>;

Cases surface_cases();
Cases collective_cases();
Cases message_cases();
Cases group_cases();
Cases life_cases();
Cases family_cases();
Cases stream_cases();
Cases graph_cases();
Cases argument_cases();
Cases nonblocking_cases();
Cases thread_cases();

Cases all_cases();
/// Cases that differ with a preloaded library on purpose; not among all cases.
Cases unlike_cases();

}  // namespace conformance
