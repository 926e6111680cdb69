// SPDX-License-Identifier: Apache-2.0
// The command line, and what of it can be judged before any rank meets another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config.h"
#include "launch_environment.h"

namespace moe {

struct Options {
  ModelConfig model;
  std::vector<std::string> data;
  int steps = 30;
  float learning_rate = 3e-3F;
  std::string json;
  std::uint16_t store_port = 0;  // 0: as the launcher says
  int join_timeout_s = 120;
  Index memory_mb = 0;  // of each rank for parameters; 0: a share of the machine's
};

enum class Parsed { kRun, kDone };  // kDone: help was asked for and given

// Throws a usage error for what makes no sense.
Parsed parse_options(int argc, char** argv, Options& options);

// Gives the number of experts (two per rank where none is named) or throws a usage error that says
// why they do not fit the ranks and what would.
Index fit_experts(const Options& options, const LaunchEnvironment& launch);

}  // namespace moe
