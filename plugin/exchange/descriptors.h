// SPDX-License-Identifier: Apache-2.0
//
// Exchange descriptors in host memory that the GPU reads: written at launch, free again once the
// kernel has set their `done` word. One that a graph replays is held until it is given back.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "exchange/message.h"
#include "kernels/layout.h"

namespace railyard::exchange {

struct Descriptor {
  CUdeviceptr work = 0;        ///< what the kernel is given
  std::byte* block = nullptr;  ///< names the descriptor
};

class Descriptors {
 public:
  Descriptors(const device::Driver& driver, CUdevice device);

  /// Writes `exchange` for `rank` of `ranks`. Needs the context current.
  /// kInvalidUsage if messages to oneself do not pair up.
  Result<Descriptor> write(const Exchange& exchange, int rank, int ranks);
  /// The descriptor was not launched after all.
  static void withdraw(const Descriptor& descriptor);
  /// The descriptor is not written over before it is given back.
  void hold(const Descriptor& descriptor);
  void give_back(const std::byte* block);
  /// One that is held is about to be launched again.
  static void reopen(std::byte* block);

 private:
  struct Block {
    std::byte* host;
    CUdeviceptr device;
    uint64_t bytes;
    bool held = false;
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
  // Scratch, kept so that a launch allocates nothing once warm.
  Side sends_, recvs_;
  std::vector<kernels::CopyWork> copies_;
  std::vector<uint32_t> counts_;
};

}  // namespace railyard::exchange
