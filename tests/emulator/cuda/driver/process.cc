// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "settings.h"

namespace railyard::emulator {
namespace {

enum class Phase { kNew, kReady, kForked, kExiting };

std::atomic<Phase> phase{Phase::kNew};
std::once_flag once;
thread_local bool in_host_function = false;

void start() {
  // Handlers run in reverse order, so this one comes before the destructors of everything that
  // was there before the driver.
  std::atexit([] {
    phase = Phase::kExiting;
    std::unique_lock wait(exit_lock());
  });
  ::pthread_atfork(nullptr, nullptr, [] { phase = Phase::kForked; });
  phase = Phase::kReady;
}

}  // namespace

CUresult initialize() {
  if (settings().devices.empty()) return CUDA_ERROR_NO_DEVICE;
  std::call_once(once, start);
  return usable();
}

CUresult usable() {
  if (in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  switch (phase.load()) {
    case Phase::kNew:
    case Phase::kForked:
      return CUDA_ERROR_NOT_INITIALIZED;
    case Phase::kReady:
      return CUDA_SUCCESS;
    case Phase::kExiting:
      return CUDA_ERROR_DEINITIALIZED;
  }
  return CUDA_ERROR_UNKNOWN;
}

bool exiting() { return phase.load() == Phase::kExiting; }

std::shared_mutex& exit_lock() {
  static auto* const kLock = new std::shared_mutex;
  return *kLock;
}

HostFunctionScope::HostFunctionScope() { in_host_function = true; }

HostFunctionScope::~HostFunctionScope() { in_host_function = false; }

}  // namespace railyard::emulator
