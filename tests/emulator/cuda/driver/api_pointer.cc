// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: what is known about an address.
#include <cstring>

#include "context.h"
#include "exports.h"
#include "memory.h"
#include "vmm.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

template <typename T>
CUresult put(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
  return CUDA_SUCCESS;
}

CUmemorytype memory_type(const Allocation& range) {
  return range.on_device() && range.device >= 0 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

CUresult describe(const Allocation& range, CUpointer_attribute attribute, CUdeviceptr address,
                  void* to) {
  bool hidden = range.kind == MemoryKind::kDevice || range.kind == MemoryKind::kMapped;
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(to, range.context != nullptr ? range.context->handle() : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(to, memory_type(range));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(to, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (hidden) return CUDA_ERROR_INVALID_VALUE;
      return put(to, address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(to, static_cast<unsigned long long>(range.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(to, unsigned{range.kind == MemoryKind::kManaged});
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(to, range.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(to, CUdeviceptr{range.base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(to, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(to, unsigned{1});
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(to, static_cast<unsigned long long>(range.kind == MemoryKind::kMapped
                                                         ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                         : CU_MEM_HANDLE_TYPE_NONE));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(to, range.accessible ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                      : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(to, static_cast<void*>(nullptr));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put(to, unsigned{0});
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/// What an address of unknown memory is said to be when many attributes are asked for at once.
void blank(CUpointer_attribute attribute, void* to) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put(to, uint64_t{0});
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(to, CU_DEVICE_INVALID);
      return;
    default:
      put(to, 0U);
  }
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* to, CUpointer_attribute attribute, CUdeviceptr address) {
  return with_context([&](Context&) -> CUresult {
    AllocationPtr range = memory().find(address);
    if (to == nullptr || !range) return CUDA_ERROR_INVALID_VALUE;
    return describe(*range, attribute, address, to);
  });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** to,
                                CUdeviceptr address) {
  return with_context([&](Context&) -> CUresult {
    if (count == 0 || attributes == nullptr || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
    AllocationPtr range = memory().find(address);
    for (unsigned i = 0; i < count; ++i) {
      if (to[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (!range || describe(*range, attributes[i], address, to[i]) != CUDA_SUCCESS) {
        blank(attributes[i], to[i]);
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  return with_context([&](Context&) -> CUresult {
    bool known = value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
                 memory().find(address) != nullptr;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // extern "C"
