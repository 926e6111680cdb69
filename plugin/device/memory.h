// SPDX-License-Identifier: Apache-2.0
//
// Memory that GPUs and CPUs of one node share.
//
// A Region is shareable: it has a file descriptor that another process of the node can import. Host
// regions are memfds mapped into the process and registered with the driver; device regions are
// VMM memory (cuMemCreate), because an import of it stays valid when its owner dies or frees, which
// legacy CUDA IPC does not promise. Host regions are zero-filled when created; device regions are
// not.
//
// A Region is thread-compatible; creation, import and destruction need the context current
// (ContextScope).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/unique_fd.h"
#include "device/driver.h"

namespace railyard::device {

enum class MemoryKind : uint8_t { kHost, kDevice };

class Region {
 public:
  /// `bytes` is rounded up to what the kind needs (page or VMM granularity). `device` is the GPU
  /// that owns a device region and may access either.
  static Result<std::unique_ptr<Region>> create(const Driver& driver, CUdevice device,
                                                MemoryKind kind, uint64_t bytes);
  /// Maps a region of another process (or of this one). Takes the descriptor. `bytes` as the owner
  /// sees them: bytes().
  static Result<std::unique_ptr<Region>> import(const Driver& driver, CUdevice device,
                                                MemoryKind kind, UniqueFd fd, uint64_t bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  MemoryKind kind() const { return kind_; }
  uint64_t bytes() const { return bytes_; }
  /// CPU address; null for device memory.
  std::byte* host() const { return host_; }
  /// GPU address.
  CUdeviceptr device() const { return device_; }
  /// Descriptor to hand to other processes; owned by the region. For device regions of the owner
  /// it is an exported handle.
  int fd() const { return fd_.get(); }
  /// A dma-buf of a device region for RDMA registration, invalid if the driver offers none.
  UniqueFd export_dmabuf() const;

 private:
  Region(const Driver& driver, MemoryKind kind, uint64_t bytes)
      : driver_(driver), kind_(kind), bytes_(bytes) {}
  Status map_host(UniqueFd fd);
  Status map_device(CUmemGenericAllocationHandle handle, CUdevice device);

  const Driver& driver_;
  MemoryKind kind_;
  uint64_t bytes_;
  std::byte* host_ = nullptr;
  CUdeviceptr device_ = 0;
  bool registered_ = false;
  UniqueFd fd_;
};

}  // namespace railyard::device
