// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include "result.h"

namespace railyard::emulator {

ncclResult_t check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return ncclSuccess;
  const char* text = nullptr;
  ::cuGetErrorString(result, &text);
  return fail(ncclUnhandledCudaError, "%s: %s", what, text != nullptr ? text : "unknown error");
}

ncclResult_t current_device(int* device) {
  ncclResult_t result = check(::cuInit(0), "cuInit");
  if (result != ncclSuccess) return result;
  CUcontext context = nullptr;
  ::cuCtxGetCurrent(&context);
  *device = 0;
  if (context == nullptr) return ncclSuccess;
  CUdevice current = 0;
  result = check(::cuCtxGetDevice(&current), "cuCtxGetDevice");
  *device = current;
  return result;
}

Device::~Device() {
  if (context_ != nullptr) ::cuDevicePrimaryCtxRelease(number_);
}

ncclResult_t Device::open(int number) {
  CUcontext context = nullptr;
  ncclResult_t result =
      check(::cuDevicePrimaryCtxRetain(&context, number), "cuDevicePrimaryCtxRetain");
  if (result != ncclSuccess) return result;
  number_ = number;
  context_ = context;
  return ncclSuccess;
}

ncclResult_t Device::bus_id(char* text, int size) const {
  return check(::cuDeviceGetPCIBusId(text, size, number_), "cuDeviceGetPCIBusId");
}

}  // namespace railyard::emulator
