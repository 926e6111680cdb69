// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: memory, copies and fills.
#include "runtime.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }  // NOLINT

/// Calls `allocate(&address)` and hands the address out; no bytes, no memory.
template <typename F>
cudaError_t allocate(void** to, size_t bytes, F allocate) {
  return with_context([&]() -> CUresult {
    if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr fresh = 0;
    CUresult code = bytes == 0 ? CUDA_SUCCESS : allocate(&fresh);
    if (code == CUDA_SUCCESS) *to = pointer(fresh);
    return code;
  });
}

bool is_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

/// One side of a 2D copy, as the driver names it.
CUmemorytype side(bool device, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  return device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

CUDA_MEMCPY2D rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                   size_t height, cudaMemcpyKind kind) {
  CUDA_MEMCPY2D shape{};
  shape.dstMemoryType =
      side(kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, kind);
  shape.srcMemoryType =
      side(kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice, kind);
  shape.dstHost = to;
  shape.dstDevice = address(to);
  shape.dstPitch = to_pitch;
  shape.srcHost = from;
  shape.srcDevice = address(from);
  shape.srcPitch = from_pitch;
  shape.WidthInBytes = width;
  shape.Height = height;
  return shape;
}

}  // namespace

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return with_context([&] { return cuMemGetInfo(free, total); });
}

cudaError_t cudaMalloc(void** to, size_t bytes) {
  return allocate(to, bytes, [&](CUdeviceptr* fresh) { return cuMemAlloc(fresh, bytes); });
}

cudaError_t cudaMallocManaged(void** to, size_t bytes, unsigned flags) {
  if (bytes == 0) return fail(cudaErrorInvalidValue);
  return allocate(to, bytes,
                  [&](CUdeviceptr* fresh) { return cuMemAllocManaged(fresh, bytes, flags); });
}

cudaError_t cudaMallocAsync(void** to, size_t bytes, cudaStream_t stream) {
  return allocate(to, bytes,
                  [&](CUdeviceptr* fresh) { return cuMemAllocAsync(fresh, bytes, stream); });
}

cudaError_t cudaMallocPitch(void** to, size_t* pitch, size_t width, size_t height) {
  return allocate(to, width * height, [&](CUdeviceptr* fresh) {
    return cuMemAllocPitch(fresh, pitch, width, height, 4);
  });
}

cudaError_t cudaFree(void* memory) {
  return with_context([&] { return cuMemFree(address(memory)); });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return with_context([&] { return cuMemFreeAsync(address(memory), stream); });
}

cudaError_t cudaHostAlloc(void** to, size_t bytes, unsigned flags) {
  return with_context([&]() -> CUresult {
    if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *to = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : cuMemHostAlloc(to, bytes, flags);
  });
}

cudaError_t cudaMallocHost(void** to, size_t bytes) { return cudaHostAlloc(to, bytes, 0); }

cudaError_t cudaFreeHost(void* memory) {
  return with_context([&] { return memory == nullptr ? CUDA_SUCCESS : cuMemFreeHost(memory); });
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  return with_context([&] { return cuMemHostRegister(memory, bytes, flags); });
}

cudaError_t cudaHostUnregister(void* memory) {
  return with_context([&] { return cuMemHostUnregister(memory); });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* memory, unsigned flags) {
  return with_context([&]() -> CUresult {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr mapped = 0;
    CUresult code = cuMemHostGetDevicePointer(&mapped, memory, flags);
    if (code == CUDA_SUCCESS) *device = pointer(mapped);
    return code;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* memory) {
  return with_context([&] { return cuMemHostGetFlags(flags, memory); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (!is_kind(kind)) return fail(cudaErrorInvalidMemcpyDirection);
  return with_context([&] {
    switch (kind) {
      case cudaMemcpyHostToDevice:
        return cuMemcpyHtoD(address(to), from, bytes);
      case cudaMemcpyDeviceToHost:
        return cuMemcpyDtoH(to, address(from), bytes);
      case cudaMemcpyDeviceToDevice:
        return cuMemcpyDtoD(address(to), address(from), bytes);
      case cudaMemcpyHostToHost:
      case cudaMemcpyDefault:
        break;
    }
    return cuMemcpy(address(to), address(from), bytes);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (!is_kind(kind)) return fail(cudaErrorInvalidMemcpyDirection);
  return with_context([&] {
    switch (kind) {
      case cudaMemcpyHostToDevice:
        return cuMemcpyHtoDAsync(address(to), from, bytes, stream);
      case cudaMemcpyDeviceToHost:
        return cuMemcpyDtoHAsync(to, address(from), bytes, stream);
      case cudaMemcpyDeviceToDevice:
        return cuMemcpyDtoDAsync(address(to), address(from), bytes, stream);
      case cudaMemcpyHostToHost:
      case cudaMemcpyDefault:
        break;
    }
    return cuMemcpyAsync(address(to), address(from), bytes, stream);
  });
}

cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return with_context([&] { return cuMemcpyDtoD(address(to), address(from), bytes); });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return with_context([&] { return cuMemcpyDtoDAsync(address(to), address(from), bytes, stream); });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  if (!is_kind(kind)) return fail(cudaErrorInvalidMemcpyDirection);
  if (to_pitch < width || from_pitch < width) return fail(cudaErrorInvalidPitchValue);
  CUDA_MEMCPY2D shape = rows(to, to_pitch, from, from_pitch, width, height, kind);
  return with_context([&] { return cuMemcpy2D(&shape); });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (!is_kind(kind)) return fail(cudaErrorInvalidMemcpyDirection);
  if (to_pitch < width || from_pitch < width) return fail(cudaErrorInvalidPitchValue);
  CUDA_MEMCPY2D shape = rows(to, to_pitch, from, from_pitch, width, height, kind);
  return with_context([&] { return cuMemcpy2DAsync(&shape, stream); });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return with_context(
      [&] { return cuMemsetD8(address(to), static_cast<unsigned char>(value), bytes); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return with_context([&] {
    return cuMemsetD8Async(address(to), static_cast<unsigned char>(value), bytes, stream);
  });
}

cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return with_context([&] {
    return cuMemsetD2D8(address(to), pitch, static_cast<unsigned char>(value), width, height);
  });
}

cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return with_context([&] {
    return cuMemsetD2D8Async(address(to), pitch, static_cast<unsigned char>(value), width, height,
                             stream);
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  return with_context([&]() -> CUresult {
    if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned type = 0;
    unsigned managed = 0;
    int device = -2;
    void* host = nullptr;
    CUdeviceptr on_device = 0;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void* values[] = {&type, &managed, &device, &host, &on_device};
    CUresult code = cuPointerGetAttributes(5, names, values, address(memory));
    if (code != CUDA_SUCCESS) return code;
    *attributes = cudaPointerAttributes{};
    attributes->type = managed != 0                   ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                       : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                                      : cudaMemoryTypeUnregistered;
    attributes->device = device;
    attributes->devicePointer = pointer(on_device);
    attributes->hostPointer = type == 0 ? const_cast<void*>(memory) : host;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
