// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: devices.
#include "runtime.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

/// Calls `f(context)` with the primary context of `peer`.
template <typename F>
CUresult with_peer(int peer, F f) {
  CUcontext context = nullptr;
  CUresult code = cuDevicePrimaryCtxRetain(&context, peer);
  if (code != CUDA_SUCCESS) return code;
  code = f(context);
  // Kept by whoever uses the peer; if nobody does, so may it go.
  cuDevicePrimaryCtxRelease(peer);
  return code;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (count != nullptr) *count = 0;
  return with_driver([&] { return cuDeviceGetCount(count); });
}

cudaError_t cudaGetDevice(int* device) {
  return with_driver([&]() -> CUresult {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = chosen_device();
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaSetDevice(int device) {
  return with_driver([&] { return use_device(device); });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return with_driver([&]() -> CUresult {
    CUcontext before = nullptr;
    cuCtxGetCurrent(&before);
    int chosen = chosen_device();
    CUresult code = use_device(device);
    if (code != CUDA_SUCCESS || chosen == device) return code;
    return before == nullptr ? use_device(chosen) : cuCtxSetCurrent(before);
  });
}

cudaError_t cudaDeviceSynchronize() {
  return with_context([] { return cuCtxSynchronize(); });
}

cudaError_t cudaDeviceReset() {
  return with_driver([]() -> CUresult {
    int device = chosen_device();
    forget_device(device);
    return cuDevicePrimaryCtxReset(device);
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return with_driver([&] {
    return cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device);
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return with_driver([&] { return cuDeviceGetPCIBusId(text, length, device); });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return with_driver([&] { return cuDeviceGetByPCIBusId(device, text); });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  return with_driver([&] {
    return cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(attribute), from, to);
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return with_driver([&] { return cuDeviceCanAccessPeer(can, device, peer); });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return with_context([&] {
    return with_peer(peer, [&](CUcontext other) { return cuCtxEnablePeerAccess(other, flags); });
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return with_context([&] {
    return with_peer(peer, [](CUcontext other) { return cuCtxDisablePeerAccess(other); });
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return with_context([&] { return cuCtxGetStreamPriorityRange(least, greatest); });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return with_context([&] { return cuCtxSetLimit(static_cast<CUlimit>(limit), value); });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return with_context([&] { return cuCtxGetLimit(value, static_cast<CUlimit>(limit)); });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return with_driver([&] { return cuDevicePrimaryCtxSetFlags(chosen_device(), flags); });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return with_driver([&] {
    int active = 0;
    return cuDevicePrimaryCtxGetState(chosen_device(), flags, &active);
  });
}

}  // extern "C"
