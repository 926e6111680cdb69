// SPDX-License-Identifier: Apache-2.0
//
// The life of the driver in this process: not initialised, in use, and out of service once the
// process exits or in a child that was forked from a process which used it.
#pragma once

#include <shared_mutex>

#include <cuda.h>

namespace railyard::emulator {

/// cuInit.
CUresult initialize();
/// CUDA_SUCCESS while the driver may be used, else why not.
CUresult usable();
/// Exit handlers have begun to run.
bool exiting();
/// Held by what exit must wait for.
std::shared_mutex& exit_lock();

/// Runs `f()`, which takes not long and touches memory of the program, unless the process exits:
/// the memory may be gone then. Exit waits for those that have begun.
template <typename F>
void unless_exiting(F f) {
  std::shared_lock lock(exit_lock());
  if (!exiting()) f();
}

/// While it lives, the calling thread runs a host function, which must not call the driver:
/// usable() is CUDA_ERROR_NOT_PERMITTED.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

}  // namespace railyard::emulator
