// SPDX-License-Identifier: Apache-2.0
//
// What one process keeps for one GPU, for all communicators on it: the kernel, the staging and
// landing pools, the transport and the carrier.
//
// Thread-safe; functions that touch the GPU make its context current themselves. Made at the first
// join that needs it and kept for the life of the process, since freeing GPU memory could
// synchronise the device.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "device/driver.h"
#include "device/memory.h"
#include "exchange/carrier.h"
#include "exchange/slots.h"
#include "transport/transport.h"

namespace railyard::exchange {

struct GpuOptions {
  uint64_t pool_bytes = 64ULL << 20;  ///< staging, and as much again for landing
  uint32_t blocks = 4;                ///< of the exchange kernel
};

/// Makes the transport of a GPU. The pools' kind (host or device memory) is the transport's choice
/// and is told here, so that the pools can be made before listen().
struct TransportChoice {
  std::unique_ptr<transport::Transport> transport;
  device::MemoryKind staging = device::MemoryKind::kHost;
  device::MemoryKind landing = device::MemoryKind::kHost;
};

class Gpu {
 public:
  /// `context` must be current-able in any thread. The transport is listening when this returns.
  static Result<std::unique_ptr<Gpu>> create(const device::Driver& driver, CUcontext context,
                                             TransportChoice choice, const GpuOptions& options);
  ~Gpu();

  /// Sets aside half of what is left of both pools, and tags for it. kUnavailable when nothing is.
  Result<Holding> hold();
  /// Gives back what the plan of `rank`, this process's, does not need.
  void trim(Holding& holding, const SlotPlan& plan, int rank);
  void release(const Holding& holding);

  const device::Driver& driver() const { return driver_; }
  CUcontext context() const { return context_; }
  CUdevice ordinal() const { return device_; }
  CUfunction kernel() const { return kernel_; }
  uint32_t blocks() const { return blocks_; }
  uint32_t threads() const { return threads_; }
  /// Whether kernels of this GPU may use the memory, by NCCL's rule (CudaPtrCheck in argcheck.cc):
  /// any that CUDA knows, unless it was made on another GPU.
  bool may_use(const void* memory) const;
  bool kernel_rings() const { return kernel_rings_; }
  /// Only for what is constant once it listens: name, description, address.
  const transport::Transport& transport() const { return *transport_; }
  std::shared_ptr<device::Region> staging() const { return staging_; }
  std::shared_ptr<device::Region> landing() const { return landing_; }
  Carrier& carrier() { return *carrier_; }
  /// Set-up work (copies, fills) happens on this stream, which waits for nobody else's.
  CUstream setup_stream() const { return setup_stream_; }

 private:
  /// Free ranges of a pool, by offset.
  class Ranges {
   public:
    explicit Ranges(uint64_t bytes);
    /// Half of what is free, as far as it is in one piece. False: nothing is free.
    bool take_half(uint64_t* offset, uint64_t* bytes);
    void give(uint64_t offset, uint64_t bytes);

   private:
    struct Range {
      uint64_t offset, bytes;
    };
    std::vector<Range> free_;
  };

  Gpu(const device::Driver& driver, CUcontext context);
  Status load_kernel(const GpuOptions& options);
  Status make_pools(const TransportChoice& choice, const GpuOptions& options);

  const device::Driver& driver_;
  CUcontext context_;
  CUdevice device_ = 0;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream setup_stream_ = nullptr;
  uint32_t blocks_ = 1, threads_ = 1;
  bool kernel_rings_ = false;
  std::shared_ptr<device::Region> staging_, landing_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<Carrier> carrier_;

  std::mutex mutex_;  ///< guards all below
  std::unique_ptr<Ranges> staging_ranges_, landing_ranges_;
  uint32_t next_tag_ = 0;
};

}  // namespace railyard::exchange
