// SPDX-License-Identifier: Apache-2.0
//
// Exchange descriptors in host memory that the GPU reads: written at launch, free again once the
// kernel has set their `done` word. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "exchange/message.h"
#include "kernels/layout.h"

namespace railyard::exchange {

class Descriptors {
 public:
  Descriptors(const device::Driver& driver, CUdevice device);

  /// Writes `exchange` for `rank` of `ranks` and yields its GPU address. Needs the context current.
  /// kInvalidUsage if messages to oneself do not pair up.
  Result<CUdeviceptr> write(const Exchange& exchange, int rank, int ranks);
  /// The descriptor written last was not launched after all.
  void withdraw();

 private:
  struct Block {
    std::byte* host;
    CUdeviceptr device;
    uint64_t bytes;
  };
  /// Messages of one direction, grouped by peer.
  struct Side {
    std::vector<kernels::FlowWork> flows;
    std::vector<kernels::MessageWork> messages;
    std::vector<kernels::MessageWork> self;
  };

  Result<Block*> take(uint64_t bytes);
  Status carve(uint64_t bytes);
  void group(const std::vector<Message>& messages, int rank, int ranks, uint32_t first, Side* side);
  Status pair_up(int rank);

  const device::Driver& driver_;
  CUdevice device_;
  std::vector<std::unique_ptr<device::Region>> regions_;
  uint64_t region_used_ = 0;
  std::vector<Block> blocks_;
  size_t next_ = 0;  ///< block to try first: the one used longest ago
  Block* last_ = nullptr;
  // Scratch, kept so that a launch allocates nothing once warm.
  Side sends_, recvs_;
  std::vector<kernels::CopyWork> copies_;
  std::vector<uint32_t> counts_;
};

}  // namespace railyard::exchange
