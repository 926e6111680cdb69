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

bool Device::may_use(const void* memory) const {
  CUdeviceptr address = 0;
  unsigned type = 0, managed = 0;
  int owner = -1;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&address, &type, &managed, &owner};
  ContextScope scope(context_);
  CUresult known =
      ::cuPointerGetAttributes(4, names, values, reinterpret_cast<CUdeviceptr>(memory));
  if (known != CUDA_SUCCESS || address == 0) return false;
  return type != CU_MEMORYTYPE_DEVICE || managed != 0 || owner == number_;
}

}  // namespace railyard::emulator
