// SPDX-License-Identifier: Apache-2.0
//
// The device of each thread, and the primary contexts the runtime holds.
#include <map>
#include <mutex>

#include "runtime.h"

namespace railyard::emulator {
namespace {

thread_local int device_of_thread = 0;

struct Held {
  std::mutex mutex;
  std::map<int, CUcontext> contexts;
};

Held& held() {
  static auto* const kHeld = new Held;
  return *kHeld;
}

}  // namespace

CUresult start() { return cuInit(0); }

CUresult use_device(int device) {
  unsigned flags = 0;
  int active = 0;
  CUresult code = cuDevicePrimaryCtxGetState(device, &flags, &active);
  if (code != CUDA_SUCCESS) return code;
  std::lock_guard lock(held().mutex);
  auto& contexts = held().contexts;
  auto found = contexts.find(device);
  if (found == contexts.end() || active == 0) {
    CUcontext context = nullptr;
    code = cuDevicePrimaryCtxRetain(&context, device);
    if (code != CUDA_SUCCESS) return code;
    found = contexts.insert_or_assign(device, context).first;
  }
  code = cuCtxSetCurrent(found->second);
  if (code == CUDA_SUCCESS) device_of_thread = device;
  return code;
}

CUresult ensure_context() {
  CUdevice device = 0;
  CUresult code = cuCtxGetDevice(&device);
  if (code == CUDA_SUCCESS) return code;
  code = start();
  return code == CUDA_SUCCESS ? use_device(device_of_thread) : code;
}

int chosen_device() {
  CUdevice device = 0;
  return cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : device_of_thread;
}

void forget_device(int device) {
  std::lock_guard lock(held().mutex);
  held().contexts.erase(device);
}

}  // namespace railyard::emulator
