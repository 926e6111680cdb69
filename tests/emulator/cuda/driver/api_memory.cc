// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: memory by address.
#include <algorithm>

#include "capture.h"
#include "context.h"
#include "device.h"
#include "exports.h"
#include "memory.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

CUresult allocate_for(Context& context, CUdeviceptr* to, size_t bytes, MemoryKind kind,
                      unsigned flags = 0) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* address = nullptr;
  CUresult result = allocate(context, bytes, kind, flags, &address);
  if (result == CUDA_SUCCESS) *to = address_of(address);
  return result;
}

/// Frees once all work that may use the memory is done.
CUresult free_memory(Context& current, uintptr_t base, std::initializer_list<MemoryKind> kinds) {
  AllocationPtr allocation = memory().take(base, kinds);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  current.synchronize();
  if (allocation->context != &current) synchronize_device(allocation->device);
  release(*allocation);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return with_context([&](Context& context) -> CUresult {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *total = kTotalMemory;
    *free = kTotalMemory - std::min(kTotalMemory, memory().used(context.device()));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return with_context_unless_captured(
      [&](Context& context) { return allocate_for(context, address, bytes, MemoryKind::kDevice); });
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return with_context_unless_captured([&](Context& context) -> CUresult {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return allocate_for(context, address, bytes, MemoryKind::kManaged, flags);
  });
}

CUresult cuMemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                         unsigned element) {
  constexpr size_t kPitchAlignment = 512;
  return with_context_unless_captured([&](Context& context) -> CUresult {
    if (pitch == nullptr || width == 0 || height == 0 ||
        (element != 4 && element != 8 && element != 16)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
    size_t bytes = 0;
    if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate_for(context, address, bytes, MemoryKind::kDevice);
    if (result == CUDA_SUCCESS) *pitch = row;
    return result;
  });
}

CUresult cuMemFree(CUdeviceptr address) {
  return with_context_unless_captured([&](Context& context) -> CUresult {
    if (address == 0) return CUDA_SUCCESS;
    return free_memory(context, address, {MemoryKind::kDevice, MemoryKind::kManaged});
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    if (CUresult result = refuse_capture(stream); result != CUDA_SUCCESS) return result;
    return allocate_for(*stream.context, address, bytes, MemoryKind::kDevice);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    if (CUresult result = refuse_capture(stream); result != CUDA_SUCCESS) return result;
    // The address leaves the map in stream order, lest earlier work be refused it; but a second
    // free must fail at once.
    if (!memory().begin_free(address)) return CUDA_ERROR_INVALID_VALUE;
    stream.submit([address] {
      if (AllocationPtr range = memory().finish_free(address)) release(*range);
    });
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  return with_context_unless_captured([&](Context& context) -> CUresult {
    if (address == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    return allocate(context, bytes, MemoryKind::kHost, flags, address);
  });
}

CUresult cuMemAllocHost(void** address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

CUresult cuMemFreeHost(void* address) {
  return with_context_unless_captured([&](Context& context) {
    return free_memory(context, address_of(address), {MemoryKind::kHost});
  });
}

CUresult cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  return with_context_unless_captured([&](Context& context) -> CUresult {
    if (address == nullptr || bytes == 0 || (flags & ~kKnown) != 0 ||
        bytes > ~uintptr_t{0} - address_of(address)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    bool fresh = memory().insert(Allocation{address_of(address), bytes, MemoryKind::kRegistered,
                                            context.device(), &context, flags});
    return fresh ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  });
}

CUresult cuMemHostUnregister(void* address) {
  return with_context_unless_captured([&](Context& context) -> CUresult {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!memory().take(address_of(address), {MemoryKind::kRegistered})) {
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    context.synchronize();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* address, unsigned flags) {
  return with_context([&](Context&) -> CUresult {
    AllocationPtr range = memory().find(address_of(address));
    if (!range || range->kind == MemoryKind::kDevice || range->kind == MemoryKind::kMapped ||
        flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return store(device, CUdeviceptr{address_of(address)});
  });
}

CUresult cuMemHostGetFlags(unsigned* flags, void* address) {
  return with_context([&](Context&) -> CUresult {
    AllocationPtr range = memory().find(address_of(address));
    if (!range || range->on_device()) return CUDA_ERROR_INVALID_VALUE;
    return store(flags, range->flags);
  });
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return with_context([&](Context&) -> CUresult {
    AllocationPtr range = memory().find(address);
    if (!range) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = range->base;
    if (bytes != nullptr) *bytes = range->bytes;
    return CUDA_SUCCESS;
  });
}

// Memory goes to other processes by VMM handles only.
CUresult cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr) {
  return with_context([](Context&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr*, CUipcMemHandle, unsigned) {
  return with_context([](Context&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr) {
  return with_context([](Context&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

// No dma-buf leaves an emulated GPU.
CUresult cuMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, CUmemRangeHandleType,
                                       unsigned long long) {
  return with_context([](Context&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

}  // extern "C"
