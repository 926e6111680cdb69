// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: initialisation, devices, contexts.
#include <algorithm>
#include <cstring>
#include <string>

#include "capture.h"
#include "context.h"
#include "device.h"
#include "exports.h"
#include "memory.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

/// Runs `f()` if the driver may be used and `device` exists.
template <typename F>
CUresult with_device(CUdevice device, F f) {
  return with_driver([&] { return is_device(device) ? f() : CUDA_ERROR_INVALID_DEVICE; });
}

CUresult copy_text(const std::string& text, char* to, int length) {
  if (to == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  size_t size = std::min(text.size(), static_cast<size_t>(length) - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) { return flags == 0 ? initialize() : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDriverGetVersion(int* version) { return store(version, kDriverVersion); }

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(ordinal, [&] { return store(device, CUdevice{ordinal}); });
}

CUresult cuDeviceGetCount(int* count) {
  return with_driver([&] { return store(count, device_count()); });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return with_device(device, [&] { return copy_text(kDeviceName, name, length); });
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return with_device(device, [&] { return store(bytes, size_t{kTotalMemory}); });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return with_device(device, [&]() -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return device_attribute(attribute, device, value);
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return with_device(device, [&] { return copy_text(pci_bus_id(device), text, length); });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  return with_driver([&]() -> CUresult {
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (CUdevice d = 0; d < device_count(); ++d) {
      if (pci_bus_id(d) == text) return store(device, d);
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return with_device(device, [&] { return store(uuid, device_uuid(device)); });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                                 CUdevice to) {
  return with_device(from, [&]() -> CUresult {
    if (!is_device(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
    switch (static_cast<int>(attribute)) {
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        return store(value, 1);
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        return store(value, 0);
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return with_device(device, [&]() -> CUresult {
    return is_device(peer) ? store(can, device != peer ? 1 : 0) : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return with_device(device, [&]() -> CUresult {
    return context == nullptr ? CUDA_ERROR_INVALID_VALUE : retain_primary(device, context);
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return with_device(device, [&] { return release_primary(device); });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return with_device(device, [&] { return reset_primary(device); });
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return with_device(device, [&] { return set_primary_flags(device, flags); });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return with_device(device, [&]() -> CUresult {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    bool is_active = false;
    primary_state(device, flags, &is_active);
    return store(active, is_active ? 1 : 0);
  });
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return with_device(device, [&]() -> CUresult {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return store(context, create_context(device, flags));
  });
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int, unsigned flags,
                        CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy(CUcontext context) {
  return with_driver([&] { return destroy_context(context); });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return with_driver([&] { return store(context, current_handle()); });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return with_driver([&] { return set_current(context); });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return with_driver([&] { return push_current(context); });
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return with_driver([&] { return pop_current(context); });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return with_context([&](Context& context) { return store(device, CUdevice{context.device()}); });
}

CUresult cuCtxGetFlags(unsigned* flags) {
  return with_context([&](Context& context) { return store(flags, context.flags()); });
}

CUresult cuCtxSynchronize() {
  return with_context([](Context& context) -> CUresult {
    if (CUresult result = refuse_capture(context); result != CUDA_SUCCESS) return result;
    context.synchronize();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  return with_driver([&]() -> CUresult {
    bool known = handle == nullptr ? current_handle() != nullptr : find_context(handle) != nullptr;
    return known ? store(version, unsigned{kDriverVersion}) : CUDA_ERROR_INVALID_CONTEXT;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return with_context([&](Context&) -> CUresult {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

// Limits are accepted and mean nothing here.
CUresult cuCtxSetLimit(CUlimit, size_t) {
  return with_context([](Context&) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit) {
  return with_context([&](Context&) { return store(value, size_t{0}); });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return with_context([&](Context& context) -> CUresult {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto other = find_context(peer);
    if (!other) return CUDA_ERROR_INVALID_CONTEXT;
    if (other->device() == context.device()) return CUDA_ERROR_INVALID_DEVICE;
    return context.enable_peer(other->device()) ? CUDA_SUCCESS
                                                : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return with_context([&](Context& context) -> CUresult {
    auto other = find_context(peer);
    if (!other) return CUDA_ERROR_INVALID_CONTEXT;
    return context.disable_peer(other->device()) ? CUDA_SUCCESS
                                                 : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

}  // extern "C"
