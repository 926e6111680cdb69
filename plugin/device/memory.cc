// SPDX-License-Identifier: Apache-2.0
#include "device/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/checked.h"

namespace railyard::device {
namespace {

/// A region that shrinks under its users would kill them with SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Result<UniqueFd> make_host_memory(uint64_t bytes) {
  UniqueFd fd(memfd_create("railyard", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::system(errno, "cannot create shared memory (memfd_create)");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::system(errno, "cannot size shared memory to %llu bytes",
                          static_cast<unsigned long long>(bytes));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return Status::system(errno, "cannot seal shared memory");
  }
  return fd;
}

Status check_host_memory(const UniqueFd& fd, uint64_t bytes) {
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return Status::system(errno, "cannot inspect shared memory");
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || static_cast<uint64_t>(info.st_size) < bytes) {
    return Status::error(Code::kInvalidArgument,
                         "shared memory of another process is not a sealed file of %llu bytes",
                         static_cast<unsigned long long>(bytes));
  }
  return {};
}

CUmemAllocationProp device_properties(const Driver& driver, CUdevice device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  int rdma = 0;
  if (driver.cuDeviceGetAttribute(&rdma,
                                  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                  device) == CUDA_SUCCESS &&
      rdma != 0) {
    properties.allocFlags.gpuDirectRDMACapable = 1;
  }
  return properties;
}

}  // namespace

Result<std::unique_ptr<Region>> Region::create(const Driver& driver, CUdevice device,
                                               MemoryKind kind, uint64_t bytes) {
  if (bytes == 0) return Status::error(Code::kInternal, "shared memory of no bytes asked for");
  if (kind == MemoryKind::kHost) {
    bytes = round_up(bytes, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
    Result<UniqueFd> fd = make_host_memory(bytes);
    if (!fd.ok()) return fd.status();
    std::unique_ptr<Region> region(new Region(driver, kind, bytes));
    if (Status status = region->map_host(fd.take()); !status.ok()) return status;
    return region;
  }

  const CUmemAllocationProp properties = device_properties(driver, device);
  size_t granularity = 0;
  Status status = driver.check(driver.cuMemGetAllocationGranularity(
                                   &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                               "cuMemGetAllocationGranularity");
  if (!status.ok()) return status;
  bytes = round_up(bytes, granularity);
  CUmemGenericAllocationHandle handle = 0;
  status = driver.check(driver.cuMemCreate(&handle, bytes, &properties, 0),
                        "cuMemCreate of " + std::to_string(bytes) + " bytes");
  if (!status.ok()) return status;
  int fd = -1;
  status = driver.check(
      driver.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle");
  if (!status.ok()) {
    driver.cuMemRelease(handle);
    return status;
  }
  std::unique_ptr<Region> region(new Region(driver, kind, bytes));
  region->fd_ = UniqueFd(fd);
  if (status = region->map_device(handle, device); !status.ok()) return status;
  return region;
}

Result<std::unique_ptr<Region>> Region::import(const Driver& driver, CUdevice device,
                                               MemoryKind kind, UniqueFd fd, uint64_t bytes) {
  std::unique_ptr<Region> region(new Region(driver, kind, bytes));
  Status status;
  if (kind == MemoryKind::kHost) {
    status = check_host_memory(fd, bytes);
    if (status.ok()) status = region->map_host(std::move(fd));
  } else {
    CUmemGenericAllocationHandle handle = 0;
    void* const shared = reinterpret_cast<void*>(static_cast<uintptr_t>(fd.get()));
    status = driver.check(driver.cuMemImportFromShareableHandle(
                              &handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                          "cuMemImportFromShareableHandle");
    region->fd_ = std::move(fd);
    if (status.ok()) status = region->map_device(handle, device);
  }
  if (!status.ok()) return status;
  return region;
}

Status Region::map_host(UniqueFd fd) {
  fd_ = std::move(fd);
  void* const address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (address == MAP_FAILED) {
    return Status::system(errno, "cannot map %llu bytes of shared memory",
                          static_cast<unsigned long long>(bytes_));
  }
  host_ = static_cast<std::byte*>(address);
  Status status =
      driver_.check(driver_.cuMemHostRegister(
                        host_, bytes_, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                    "cuMemHostRegister of " + std::to_string(bytes_) + " bytes");
  if (!status.ok()) return status;
  registered_ = true;
  return driver_.check(driver_.cuMemHostGetDevicePointer(&device_, host_, 0),
                       "cuMemHostGetDevicePointer");
}

Status Region::map_device(CUmemGenericAllocationHandle handle, CUdevice device) {
  CUdeviceptr address = 0;
  Status status =
      driver_.check(driver_.cuMemAddressReserve(&address, bytes_, 0, 0, 0), "cuMemAddressReserve");
  if (status.ok()) {
    status = driver_.check(driver_.cuMemMap(address, bytes_, 0, handle, 0), "cuMemMap");
    if (status.ok()) {
      CUmemAccessDesc access = {};
      access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access.location.id = device;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      status = driver_.check(driver_.cuMemSetAccess(address, bytes_, &access, 1),
                             "cuMemSetAccess (are the GPUs of this node peers of each other?)");
      if (!status.ok()) driver_.cuMemUnmap(address, bytes_);
    }
    if (!status.ok()) driver_.cuMemAddressFree(address, bytes_);
  }
  // The mapping, where there is one, keeps the memory.
  driver_.cuMemRelease(handle);
  if (status.ok()) device_ = address;
  return status;
}

Region::~Region() {
  if (kind_ == MemoryKind::kDevice) {
    if (device_ == 0) return;
    driver_.cuMemUnmap(device_, bytes_);
    driver_.cuMemAddressFree(device_, bytes_);
    return;
  }
  if (registered_) driver_.cuMemHostUnregister(host_);
  if (host_ != nullptr) munmap(host_, bytes_);
}

UniqueFd Region::export_dmabuf() const {
  int fd = -1;
  if (kind_ != MemoryKind::kDevice || driver_.cuMemGetHandleForAddressRange == nullptr ||
      driver_.cuMemGetHandleForAddressRange(
          &fd, device_, bytes_, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS) {
    return UniqueFd();
  }
  return UniqueFd(fd);
}

}  // namespace railyard::device
