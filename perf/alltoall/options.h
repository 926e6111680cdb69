// SPDX-License-Identifier: Apache-2.0
//
// What a user can ask of alltoall_perf; names and meanings as in nccl-tests where that has them.
#pragma once

#include <cstdint>
#include <string>

#include <nccl.h>

#include "pattern.h"

namespace alltoall {

struct Options {
  uint64_t min_bytes = 1 << 20, max_bytes = 32 << 20;
  uint64_t step_bytes = 0;  ///< used where factor is 0
  double factor = 2;
  int iterations = 20, warmup = 5;
  bool check = true;
  int threads = 1, gpus = 1;
  std::string type = "float";
  Pattern pattern = *Pattern::parse("uniform");
  bool messages = false;  ///< grouped sends and receives also for the uniform pattern
  uint64_t seed = 1;
  std::string json;
  std::string expect;  ///< nccl, railyard or empty
  int join_timeout_s = 120;

  ncclDataType_t data_type() const;
  uint64_t type_bytes() const;
};

/// False: the program is to end with `*status`; what there was to say has been said.
bool parse(int argc, char** argv, Options* options, int* status);

}  // namespace alltoall
