// SPDX-License-Identifier: Apache-2.0
//
// Lines for people and JSON for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"

namespace alltoall {

struct Result {
  uint64_t size = 0, bytes_per_pair = 0;  ///< as asked for, and the same shared evenly
  std::vector<double> times_us;           ///< of each iteration, on the slowest rank
  uint64_t busiest_node_bytes = 0;
  int64_t wrong = -1;  ///< elements; -1: not checked
};

class Report {
 public:
  /// moe::Error if the JSON file cannot be written.
  Report(const Options& options, int ranks, int nodes);
  void add(const Result& result);
  /// The last line, and the JSON file if one was asked for.
  void finish(const std::string& carrier) const;

 private:
  const Options& options_;
  const int ranks_, nodes_;
  std::vector<Result> results_;
};

}  // namespace alltoall
