// SPDX-License-Identifier: Apache-2.0
#include "exchange/segment.h"

#include <bit>

#include "base/checked.h"

namespace railyard::exchange {
namespace {

constexpr uint64_t kLine = 128;

/// Words that every rank of the node has one of, a line each to keep writers apart.
struct alignas(kLine) RankWords {
  uint32_t sleeping;
  uint32_t farewell;
  alignas(64) kernels::Doorbell doorbell;
};

constexpr uint64_t kStatusBytes = (sizeof(kernels::RankStatus) + kLine - 1) / kLine * kLine;

}  // namespace

Segment::Segment(const topology::Topology& topology, const SlotPlan& plan, int node)
    : members_(static_cast<int>(topology.members(node).size())),
      ranks_(topology.ranks()),
      slots_(plan.slots_per_flow()) {
  const auto members = static_cast<uint64_t>(members_);
  const uint64_t words =
      round_up(members * static_cast<uint64_t>(ranks_) * slots_ * sizeof(uint64_t), kLine);
  status_ = members * sizeof(RankWords);
  credit_ = status_ + members * kStatusBytes;
  arrival_ = credit_ + words;
  post_ = arrival_ + words;

  const auto remote = static_cast<uint64_t>(ranks_ - members_);
  post_entries_ = std::bit_ceil(remote * slots_ + 1);
  uint64_t next = post_ + members * post_entries_ * sizeof(kernels::RingEntry);
  for (const int relay : topology.members(node)) {
    // A slot once, and a flow given up once.
    const uint64_t flows = plan.landing_slots(relay) / slots_ / members;
    release_entries_.push_back(std::bit_ceil(flows * (slots_ + 1) + 1));
    release_rings_.push_back(next);
    next += members * release_entries_.back() * sizeof(kernels::RingEntry);
  }
  bytes_ = next;
}

uint64_t Segment::sleeping(int local) const {
  return static_cast<uint64_t>(local) * sizeof(RankWords) + offsetof(RankWords, sleeping);
}

uint64_t Segment::farewell(int local) const {
  return static_cast<uint64_t>(local) * sizeof(RankWords) + offsetof(RankWords, farewell);
}

uint64_t Segment::doorbell(int local) const {
  return static_cast<uint64_t>(local) * sizeof(RankWords) + offsetof(RankWords, doorbell);
}

uint64_t Segment::status(int local) const {
  return status_ + static_cast<uint64_t>(local) * kStatusBytes;
}

uint64_t Segment::word(uint64_t base, int local, int peer) const {
  const auto row = static_cast<uint64_t>(local) * static_cast<uint64_t>(ranks_);
  return base + (row + static_cast<uint64_t>(peer)) * slots_ * sizeof(uint64_t);
}

uint64_t Segment::credit(int local, int dst) const { return word(credit_, local, dst); }

uint64_t Segment::arrival(int local, int src) const { return word(arrival_, local, src); }

uint64_t Segment::post_ring(int local) const {
  return post_ + static_cast<uint64_t>(local) * post_entries_ * sizeof(kernels::RingEntry);
}

uint64_t Segment::release_ring(int relay, int local) const {
  return release_rings_[static_cast<size_t>(relay)] +
         static_cast<uint64_t>(local) * release_entries(relay) * sizeof(kernels::RingEntry);
}

}  // namespace railyard::exchange
