// SPDX-License-Identifier: Apache-2.0
//
// Makes what a NIC wrote to GPU memory visible before anyone is told of it. On GPUs before sm_90 a
// completion can overtake the data on its way to the GPU; a read by the same NIC from the same
// memory cannot.
//
//   write completes -> add(cell) -> one read of the landing memory over a queue pair that ends
//   where it begins -> all cells added before it was posted are visible
//
// One per NIC, since only the NIC that wrote pushes its writes. One read is under way at a time.
// Thread-bound.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "transport/transport.h"
#include "transport/verbs/nic.h"
#include "transport/verbs/queue_pair.h"

namespace railyard::verbs {

class Flusher {
 public:
  struct Arrived {
    transport::LinkId link{};
    uint32_t tag = 0;
  };

  /// `nic` is exposed, with `landing`.
  static Result<std::unique_ptr<Flusher>> make(Nic& nic, const transport::Area& landing);

  uint32_t queue_pair() const { return pair_->number(); }
  void add(const Arrived& cell) { waiting_.push_back(cell); }
  /// Posts a read if cells wait for one and there is room.
  Status pump();
  /// The read has completed: the cells that are now visible.
  std::vector<Arrived> completed(uint64_t wr_id);

 private:
  Flusher(Nic& nic, const transport::Area& landing);

  Nic& nic_;
  const uint64_t landing_address_;
  alignas(64) std::array<std::byte, 64> sink_{};
  MemoryRegion sink_region_;
  std::unique_ptr<QueuePair> pair_;
  std::vector<Arrived> waiting_, flushing_;
};

}  // namespace railyard::verbs
