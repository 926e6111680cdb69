// SPDX-License-Identifier: Apache-2.0
//
// Who owns which slot. Pure: every rank computes the same plan from the join records.
//
// Each rank sets memory aside for a communicator before it knows the others (a Holding). From all
// holdings follows one cell size and one number of slots per flow that fit everywhere. Staging
// slots of a rank are ordered by destination rank, itself left out; landing slots of a relay by
// source rank, then by local index of the destination. Tags of a rank count its landing slots
// first, then its staging slots, then one per destination rank by which a flow is given up.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"

namespace railyard::exchange {

inline constexpr uint64_t kMaxCellBytes = 256 * 1024;  ///< payload of the largest cell
inline constexpr uint64_t kMinCellBytes = 1024;
inline constexpr uint32_t kMaxSlotsPerFlow = 16;

/// What a rank set aside in its pools for one communicator. Bytes, offsets into its pools.
struct Holding {
  uint64_t staging_offset = 0, staging_bytes = 0;
  uint64_t landing_offset = 0, landing_bytes = 0;
  uint32_t first_tag = 0, tags = 0;
};

/// How many tags a holding of this size can need: enough names for the smallest cells.
inline uint64_t most_tags(const Holding& holding) {
  return (holding.staging_bytes * 2 + holding.landing_bytes) / kMinCellBytes;
}

/// What the first communicator of a GPU sets aside of pools of this size, as Gpu::hold() does.
inline Holding first_holding(uint64_t pool_bytes) {
  Holding holding;
  holding.staging_bytes = holding.landing_bytes = pool_bytes / 2;
  holding.tags = static_cast<uint32_t>(most_tags(holding));
  return holding;
}

class SlotPlan {
 public:
  /// Fails with kUnavailable, naming the rank with too little memory and what would help.
  static Result<SlotPlan> make(topology::Topology topology, std::vector<Holding> holdings);

  uint32_t slots_per_flow() const { return slots_; }
  uint64_t cell_bytes() const { return cell_bytes_; }
  /// Header, payload and padding.
  uint64_t stride() const { return stride_; }

  uint32_t staging_slots(int rank) const;
  uint32_t landing_slots(int rank) const;
  /// Index of slot 0 of flow src → dst among src's staging slots. REQUIRES: src != dst.
  uint32_t staging_slot(int src, int dst) const;
  /// Index of slot 0 of flow src → dst among the landing slots of src's relay at dst's node.
  /// REQUIRES: different nodes.
  uint32_t landing_slot(int src, int dst) const;

  uint64_t staging_offset(int rank, uint32_t slot) const;
  uint64_t landing_offset(int rank, uint32_t slot) const;
  uint32_t landing_tag(int rank, uint32_t slot) const;
  uint32_t staging_tag(int rank, uint32_t slot) const;
  /// By which src learns that its flow to dst was given up.
  uint32_t broken_tag(int src, int dst) const;

  /// What a holding has to keep; the rest may be given back.
  uint64_t staging_bytes(int rank) const { return staging_slots(rank) * stride_; }
  uint64_t landing_bytes(int rank) const { return landing_slots(rank) * stride_; }
  uint32_t tags(int rank) const;

 private:
  SlotPlan(topology::Topology topology, std::vector<Holding> holdings);
  /// The number of slots per flow that fit everywhere with cells of this size.
  uint32_t slots_that_fit(uint64_t stride) const;

  topology::Topology topology_;
  std::vector<Holding> holdings_;
  std::vector<uint32_t> source_position_;  ///< [node * ranks + src]: among its relay's sources
  std::vector<uint32_t> relayed_flows_;    ///< [rank]
  uint32_t slots_ = 0;
  uint64_t cell_bytes_ = 0, stride_ = 0;
};

}  // namespace railyard::exchange
