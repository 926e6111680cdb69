// SPDX-License-Identifier: Apache-2.0
//
// The node segment of one communicator: host memory in which its ranks on one node, their kernels
// and their carriers meet. Every rank of the node computes the same layout. Words are written and
// read as kernels/layout.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exchange/slots.h"
#include "kernels/layout.h"
#include "topology/topology.h"

namespace railyard::exchange {

/// Values of a farewell word other than 0: nobody need wait for the rank any more.
inline constexpr uint32_t kSaid = 1;     ///< it said so
inline constexpr uint32_t kLost = 2;     ///< its process ended without
inline constexpr uint32_t kLeaving = 3;  ///< its process is exiting: as good as lost, but it waits

class Segment {
 public:
  Segment(const topology::Topology& topology, const SlotPlan& plan, int node);

  uint64_t bytes() const { return bytes_; }

  /// Offsets in the segment. `local` indices count the ranks of the node.
  uint64_t sleeping(int local) const;                 ///< uint32_t: carrier of that rank blocks
  uint64_t farewell(int local) const;                 ///< uint32_t: 0 or one of the above
  uint64_t doorbell(int local) const;                 ///< kernels::Doorbell
  uint64_t status(int local) const;                   ///< kernels::RankStatus
  uint64_t credit(int local, int dst) const;          ///< uint64_t[slots], flow local → dst
  uint64_t arrival(int local, int src) const;         ///< uint64_t[slots], flow src → local
  uint64_t post_ring(int local) const;                ///< kernels::RingEntry[post_entries()]
  uint64_t release_ring(int relay, int local) const;  ///< RingEntry[release_entries(relay)]

  uint64_t post_entries() const { return post_entries_; }
  uint64_t release_entries(int relay) const { return release_entries_[static_cast<size_t>(relay)]; }

 private:
  uint64_t word(uint64_t base, int local, int peer) const;

  int members_, ranks_;
  uint32_t slots_;
  uint64_t post_entries_;
  std::vector<uint64_t> release_entries_;  ///< [relay]
  std::vector<uint64_t> release_rings_;    ///< [relay]: offset of the ring of local index 0
  uint64_t status_, credit_, arrival_, post_, bytes_;
};

/// Typed access at an offset of a mapped segment.
template <typename T>
T* at(std::byte* base, uint64_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

}  // namespace railyard::exchange
