// SPDX-License-Identifier: Apache-2.0
#include "vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "device.h"
#include "handles.h"
#include "memory.h"

namespace railyard::emulator {
namespace {

constexpr char kNameFormat[] = "emulated-cuda-memory-%d-%d";

/// One mapping: what is there and who may touch it.
struct Mapping {
  size_t bytes;
  std::shared_ptr<Physical> physical;
  std::map<int, CUmemAccess_flags> access;  ///< by device; the host is -1
};

struct AddressSpace {
  std::mutex mutex;
  std::map<uintptr_t, size_t> reservations;
  std::map<uintptr_t, Mapping> mappings;

  /// REQUIRES: mutex.
  bool reserved(uintptr_t base, size_t bytes) const {
    auto it = reservations.upper_bound(base);
    if (it == reservations.begin()) return false;
    --it;
    return base - it->first <= it->second && bytes <= it->second - (base - it->first);
  }
};

AddressSpace& space() {
  static auto* const kSpace = new AddressSpace;
  return *kSpace;
}

HandleTable<CUmemGenericAllocationHandle, Physical>& handles() {
  static auto* const kTable = new HandleTable<CUmemGenericAllocationHandle, Physical>(3);
  return *kTable;
}

void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }  // NOLINT

int location_key(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1;
}

bool valid_location(const CUmemLocation& location) {
  switch (static_cast<int>(location.type)) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return is_device(location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return true;
    default:
      return false;
  }
}

void poison(int fd, size_t bytes) {
  size_t length = std::min(bytes, kPoisonBytes);
  void* view = ::mmap(nullptr, length, PROT_WRITE, MAP_SHARED, fd, 0);
  if (view == MAP_FAILED) return;
  std::memset(view, kPoison, length);
  ::munmap(view, length);
}

bool aligned(uint64_t value) { return value % kGranularity == 0; }

}  // namespace

CUresult check_properties(const CUmemAllocationProp& properties) {
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
      !is_device(properties.location.id)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return valid_location(properties.location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult create_physical(size_t bytes, const CUmemAllocationProp& properties,
                         CUmemGenericAllocationHandle* handle) {
  if (CUresult result = check_properties(properties); result != CUDA_SUCCESS) return result;
  if (bytes == 0 || !aligned(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kTotalMemory) return CUDA_ERROR_OUT_OF_MEMORY;
  char name[64];
  std::snprintf(name, sizeof(name), kNameFormat, static_cast<int>(properties.location.type),
                properties.location.id);
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  poison(fd.get(), bytes);
  *handle =
      handles().insert(std::make_shared<Physical>(Physical{std::move(fd), bytes, properties}));
  return CUDA_SUCCESS;
}

CUresult release_physical(CUmemGenericAllocationHandle handle) {
  return handles().take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

std::shared_ptr<Physical> find_physical(CUmemGenericAllocationHandle handle) {
  return handles().find(handle);
}

CUresult export_physical(CUmemGenericAllocationHandle handle, int* fd) {
  auto physical = find_physical(handle);
  if (!physical || physical->properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int copy = ::fcntl(physical->fd.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *fd = copy;
  return CUDA_SUCCESS;
}

CUresult import_physical(int fd, CUmemGenericAllocationHandle* handle) {
  std::string link = "/proc/self/fd/" + std::to_string(fd);
  char name[128] = "";
  struct stat status {};
  CUmemAllocationProp properties{};
  int type = 0;
  if (::readlink(link.c_str(), name, sizeof(name) - 1) < 0 || ::fstat(fd, &status) != 0 ||
      std::sscanf(name, "/memfd:emulated-cuda-memory-%d-%d", &type, &properties.location.id) != 2) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = static_cast<CUmemLocationType>(type);
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  *handle = handles().insert(std::make_shared<Physical>(
      Physical{std::move(copy), static_cast<size_t>(status.st_size), properties}));
  return CUDA_SUCCESS;
}

CUresult retain_physical(CUdeviceptr address, CUmemGenericAllocationHandle* handle) {
  std::lock_guard lock(space().mutex);
  auto it = space().mappings.upper_bound(address);
  if (it == space().mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (address - it->first >= it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  *handle = handles().insert(it->second.physical);
  return CUDA_SUCCESS;
}

CUresult reserve_addresses(size_t bytes, size_t alignment, CUdeviceptr hint, CUdeviceptr* base) {
  if (bytes == 0 || !aligned(bytes) || (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  alignment = std::max(alignment, kGranularity);
  // Take more than wanted and give back what lies before and after the aligned part.
  size_t total = bytes + alignment;
  void* view =
      ::mmap(pointer(hint), total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (view == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  uintptr_t start = address_of(view);
  uintptr_t first = (start + alignment - 1) & ~(alignment - 1);
  if (first > start) ::munmap(view, first - start);
  if (size_t rest = start + total - (first + bytes); rest > 0) {
    ::munmap(pointer(first + bytes), rest);
  }
  std::lock_guard lock(space().mutex);
  space().reservations.emplace(first, bytes);
  *base = first;
  return CUDA_SUCCESS;
}

CUresult free_addresses(CUdeviceptr base, size_t bytes) {
  std::lock_guard lock(space().mutex);
  auto it = space().reservations.find(base);
  if (it == space().reservations.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  auto mapped = space().mappings.lower_bound(base);
  if (mapped != space().mappings.end() && mapped->first < base + bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ::munmap(pointer(base), bytes);
  space().reservations.erase(it);
  return CUDA_SUCCESS;
}

CUresult map_physical(CUdeviceptr base, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle handle) {
  auto physical = find_physical(handle);
  if (!physical || bytes == 0 || !aligned(base) || !aligned(bytes) || offset != 0 ||
      bytes > physical->bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(space().mutex);
  if (!space().reserved(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CUmemLocation& location = physical->properties.location;
  if (!memory().insert(Allocation{base, bytes, MemoryKind::kMapped, location_key(location), nullptr,
                                  0, 0, false})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (::mmap(pointer(base), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd.get(), 0) ==
      MAP_FAILED) {
    memory().take_mapped(base, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  space().mappings.emplace(base, Mapping{bytes, physical, {}});
  return CUDA_SUCCESS;
}

CUresult unmap_physical(CUdeviceptr base, size_t bytes) {
  std::lock_guard lock(space().mutex);
  if (!memory().take_mapped(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto& mappings = space().mappings;
  mappings.erase(mappings.lower_bound(base), mappings.lower_bound(base + bytes));
  void* view = ::mmap(pointer(base), bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return view == MAP_FAILED ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr base, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (!valid_location(access[i].location)) return CUDA_ERROR_INVALID_DEVICE;
  }
  std::lock_guard lock(space().mutex);
  auto& mappings = space().mappings;
  if (!memory().set_accessible(base, bytes, true)) return CUDA_ERROR_INVALID_VALUE;
  for (auto it = mappings.lower_bound(base); it != mappings.end() && it->first < base + bytes;
       ++it) {
    int protection = PROT_NONE;
    for (size_t i = 0; i < count; ++i) {
      it->second.access[location_key(access[i].location)] = access[i].flags;
    }
    for (const auto& [location, flags] : it->second.access) {
      if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) protection |= PROT_READ;
      if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection |= PROT_WRITE;
    }
    ::mprotect(pointer(it->first), it->second.bytes, protection);
    if (protection == PROT_NONE) memory().set_accessible(it->first, it->second.bytes, false);
  }
  return CUDA_SUCCESS;
}

CUresult get_access(CUdeviceptr address, const CUmemLocation& location, unsigned long long* flags) {
  std::lock_guard lock(space().mutex);
  auto it = space().mappings.upper_bound(address);
  if (it == space().mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (address - it->first >= it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  auto granted = it->second.access.find(location_key(location));
  *flags = granted == it->second.access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : granted->second;
  return CUDA_SUCCESS;
}

}  // namespace railyard::emulator
