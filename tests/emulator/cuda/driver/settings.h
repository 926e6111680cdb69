// SPDX-License-Identifier: Apache-2.0
//
// What the environment says about the emulated machine. Read once, at the first use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace railyard::emulator {

struct Settings {
  std::vector<int>
      devices;          ///< EMULATOR_GPUS seen through CUDA_VISIBLE_DEVICES: numbers on the node
  int multiprocessors;  ///< EMULATOR_MULTIPROCESSORS
  int block_threads;    ///< EMULATOR_BLOCK_THREADS
  std::string host;     ///< identity of the node: NCCL_HOSTID, else host name and boot
};

const Settings& settings();

}  // namespace railyard::emulator
