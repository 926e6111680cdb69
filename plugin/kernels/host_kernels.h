// SPDX-License-Identifier: Apache-2.0
//
// The kernels of this folder compiled for the CPU, for the emulator and for kernel tests. Blocks
// and the threads of a block run as concurrent threads of the process; waiting sleeps on futexes.
#pragma once

#include <cstdint>
#include <span>

namespace railyard::kernels {

struct HostKernel {
  const char* name;            ///< as cuModuleGetFunction is asked for it
  uint32_t parameters;         ///< each 8 bytes long
  void (*entry)(void** args);  ///< one thread of the grid; args as cuLaunchKernel takes them
};

/// All kernels, the mark kHostKernelMark among them.
std::span<const HostKernel> host_kernels();

/// Runs one grid and returns when every thread of it has left. Threads are kept for later grids
/// (the calling thread is one of them). Any number of grids may run at the same time.
void run_on_host(const HostKernel& kernel, uint32_t blocks, uint32_t threads_per_block,
                 void** args);

}  // namespace railyard::kernels
