// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: physical memory and address ranges.
#include "context.h"
#include "exports.h"
#include "vmm.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return with_driver([&]() -> CUresult {
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_properties(*properties);
    return result == CUDA_SUCCESS ? store(granularity, size_t{kGranularity}) : result;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  return with_driver([&]() -> CUresult {
    if (handle == nullptr || properties == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return create_physical(bytes, *properties, handle);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_driver([&] { return release_physical(handle); });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return with_driver([&]() -> CUresult {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return retain_physical(reinterpret_cast<CUdeviceptr>(address), handle);
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  return with_driver([&]() -> CUresult {
    auto physical = find_physical(handle);
    return physical ? store(properties, physical->properties) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  return with_driver([&]() -> CUresult {
    if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    return export_physical(handle, static_cast<int*>(shareable));
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  return with_driver([&]() -> CUresult {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    // The descriptor is passed in the pointer.
    return import_physical(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), handle);
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* base, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
  return with_driver([&]() -> CUresult {
    if (base == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return reserve_addresses(bytes, alignment, hint, base);
  });
}

CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes) {
  return with_driver([&] { return free_addresses(base, bytes); });
}

CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return with_driver([&]() -> CUresult {
    return flags == 0 ? map_physical(base, bytes, offset, handle) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemUnmap(CUdeviceptr base, size_t bytes) {
  return with_driver([&] { return unmap_physical(base, bytes); });
}

CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  return with_driver([&] { return set_access(base, bytes, access, count); });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  return with_driver([&]() -> CUresult {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return get_access(address, *location, flags);
  });
}

}  // extern "C"
