// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: copies and fills.
#include "copy.h"
#include "exports.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }  // NOLINT

CUresult copy_bytes(CUstream handle, void* to, const void* from, size_t bytes, Side to_side,
                    Side from_side, Mode mode) {
  return with_stream(handle, [&](StreamObject& stream) {
    return copy(stream, CopyShape{to, from, bytes}, to_side, from_side, mode);
  });
}

CUresult fill_elements(CUstream handle, const FillShape& shape) {
  return with_stream(handle, [&](StreamObject& stream) { return fill(stream, shape); });
}

/// The first byte and the kind of one side of a 2D copy; false for arrays, which there are none of.
bool side_of(CUmemorytype type, const void* host, CUdeviceptr device, size_t offset, char** first,
             Side* side) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      *first = static_cast<char*>(const_cast<void*>(host)) + offset;
      *side = Side::kHost;
      return true;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      *first = static_cast<char*>(pointer(device)) + offset;
      *side = type == CU_MEMORYTYPE_DEVICE ? Side::kDevice : Side::kAny;
      return true;
    case CU_MEMORYTYPE_ARRAY:
      return false;
  }
  return false;
}

CUresult copy_rows(CUstream handle, const CUDA_MEMCPY2D* p, Mode mode) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    size_t to_pitch = p->dstPitch != 0 ? p->dstPitch : p->WidthInBytes;
    size_t from_pitch = p->srcPitch != 0 ? p->srcPitch : p->WidthInBytes;
    char* to = nullptr;
    char* from = nullptr;
    Side to_side;
    Side from_side;
    if (!side_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstY * to_pitch + p->dstXInBytes,
                 &to, &to_side) ||
        !side_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcY * from_pitch + p->srcXInBytes,
                 &from, &from_side)) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    return copy(stream, CopyShape{to, from, p->WidthInBytes, p->Height, to_pitch, from_pitch},
                to_side, from_side, mode);
  });
}

constexpr Mode kSync = Mode::kSynchronous;
constexpr Mode kAsync = Mode::kAsynchronous;

}  // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_bytes(nullptr, pointer(to), pointer(from), bytes, Side::kAny, Side::kAny, kSync);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_bytes(stream, pointer(to), pointer(from), bytes, Side::kAny, Side::kAny, kAsync);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_bytes(nullptr, pointer(to), from, bytes, Side::kDevice, Side::kHost, kSync);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_bytes(stream, pointer(to), from, bytes, Side::kDevice, Side::kHost, kAsync);
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return copy_bytes(nullptr, to, pointer(from), bytes, Side::kHost, Side::kDevice, kSync);
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_bytes(stream, to, pointer(from), bytes, Side::kHost, Side::kDevice, kAsync);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_bytes(nullptr, pointer(to), pointer(from), bytes, Side::kDevice, Side::kDevice,
                    kSync);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_bytes(stream, pointer(to), pointer(from), bytes, Side::kDevice, Side::kDevice,
                    kAsync);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return cuMemcpyDtoD(to, from, bytes);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                           CUstream stream) {
  return cuMemcpyDtoDAsync(to, from, bytes, stream);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D* shape) { return copy_rows(nullptr, shape, kSync); }

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* shape) {
  return copy_rows(nullptr, shape, kSync);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* shape, CUstream stream) {
  return copy_rows(stream, shape, kAsync);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  return fill_elements(nullptr, FillShape{to, value, 1, count});
}

CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) {
  return fill_elements(nullptr, FillShape{to, value, 2, count});
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
  return fill_elements(nullptr, FillShape{to, value, 4, count});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill_elements(stream, FillShape{to, value, 1, count});
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill_elements(stream, FillShape{to, value, 2, count});
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill_elements(stream, FillShape{to, value, 4, count});
}

CUresult cuMemsetD2D8(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                      size_t height) {
  return fill_elements(nullptr, FillShape{to, value, 1, width, height, pitch});
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  return fill_elements(stream, FillShape{to, value, 1, width, height, pitch});
}

CUresult cuMemsetD2D32(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
  return fill_elements(nullptr, FillShape{to, value, 4, width, height, pitch});
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                            size_t height, CUstream stream) {
  return fill_elements(stream, FillShape{to, value, 4, width, height, pitch});
}

}  // extern "C"
