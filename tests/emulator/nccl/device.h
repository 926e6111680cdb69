// SPDX-License-Identifier: Apache-2.0
//
// What the emulated NCCL needs of the CUDA driver.
#pragma once

#include <string>

#include <cuda.h>
#include <nccl.h>

namespace railyard::emulator {

/// ncclUnhandledCudaError, with the driver's text, for anything but CUDA_SUCCESS.
ncclResult_t check(CUresult result, const char* what);

/// Number of the device that is current in this thread, as CUDA's runtime sees it: 0 if none is.
ncclResult_t current_device(int* device);

/// The primary context of a device, held for the life of this object.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  ncclResult_t open(int number);
  int number() const { return number_; }
  CUcontext context() const { return context_; }
  ncclResult_t bus_id(char* text, int size) const;
  /// Whether kernels of the device may use the memory, as NCCL finds out: any that CUDA knows but
  /// what was made on another device.
  bool may_use(const void* memory) const;

 private:
  int number_ = -1;
  CUcontext context_ = nullptr;
};

/// Makes a context current for a scope.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context) { ::cuCtxPushCurrent(context); }
  ~ContextScope() { ::cuCtxPopCurrent(nullptr); }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
};

}  // namespace railyard::emulator
