// SPDX-License-Identifier: Apache-2.0
//
// Physical memory apart from addresses (cuMemCreate, cuMemMap and kin). Physical memory is a memfd;
// its name carries the device it lies on, so that a process that imports the descriptor learns it.
// It lives as long as any handle, mapping or descriptor of any process.
#pragma once

#include <cstddef>
#include <memory>

#include <cuda.h>

#include "base/unique_fd.h"

namespace railyard::emulator {

inline constexpr size_t kGranularity = size_t{2} << 20;

struct Physical {
  UniqueFd fd;
  size_t bytes;
  CUmemAllocationProp properties;
};

/// CUDA_SUCCESS if physical memory of these properties can be made.
CUresult check_properties(const CUmemAllocationProp& properties);
CUresult create_physical(size_t bytes, const CUmemAllocationProp& properties,
                         CUmemGenericAllocationHandle* handle);
CUresult release_physical(CUmemGenericAllocationHandle handle);
std::shared_ptr<Physical> find_physical(CUmemGenericAllocationHandle handle);
/// A new descriptor, the caller's.
CUresult export_physical(CUmemGenericAllocationHandle handle, int* fd);
/// The descriptor stays the caller's.
CUresult import_physical(int fd, CUmemGenericAllocationHandle* handle);
/// A further handle of what is mapped at `address`.
CUresult retain_physical(CUdeviceptr address, CUmemGenericAllocationHandle* handle);

CUresult reserve_addresses(size_t bytes, size_t alignment, CUdeviceptr hint, CUdeviceptr* base);
CUresult free_addresses(CUdeviceptr base, size_t bytes);
CUresult map_physical(CUdeviceptr base, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle handle);
CUresult unmap_physical(CUdeviceptr base, size_t bytes);
CUresult set_access(CUdeviceptr base, size_t bytes, const CUmemAccessDesc* access, size_t count);
CUresult get_access(CUdeviceptr address, const CUmemLocation& location, unsigned long long* flags);

}  // namespace railyard::emulator
