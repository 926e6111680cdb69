// SPDX-License-Identifier: Apache-2.0
#include "exchange/slots.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "kernels/layout.h"

namespace railyard::exchange {
namespace {

constexpr uint64_t kSlotAlignment = 128;

uint64_t stride_of(uint64_t cell_bytes) {
  return round_up(sizeof(kernels::CellHeader) + cell_bytes, kSlotAlignment);
}

}  // namespace

SlotPlan::SlotPlan(topology::Topology topology, std::vector<Holding> holdings)
    : topology_(std::move(topology)), holdings_(std::move(holdings)) {
  const auto ranks = static_cast<size_t>(topology_.ranks());
  source_position_.resize(ranks * static_cast<size_t>(topology_.nodes()));
  relayed_flows_.resize(ranks);
  for (int relay = 0; relay < topology_.ranks(); ++relay) {
    const int node = topology_.node_of(relay);
    const std::vector<int> sources = topology_.sources_relayed_by(relay);
    for (size_t i = 0; i < sources.size(); ++i) {
      source_position_[static_cast<size_t>(node) * ranks + static_cast<size_t>(sources[i])] =
          static_cast<uint32_t>(i);
    }
    relayed_flows_[static_cast<size_t>(relay)] =
        static_cast<uint32_t>(sources.size() * topology_.members(node).size());
  }
}

uint32_t SlotPlan::slots_that_fit(uint64_t stride) const {
  uint64_t fit = kMaxSlotsPerFlow;
  const auto flows_out = static_cast<uint64_t>(topology_.ranks() - 1);
  for (size_t r = 0; r < holdings_.size(); ++r) {
    if (flows_out > 0) fit = std::min(fit, holdings_[r].staging_bytes / (stride * flows_out));
    const uint64_t flows_in = relayed_flows_[r];
    if (flows_in > 0) fit = std::min(fit, holdings_[r].landing_bytes / (stride * flows_in));
    const uint64_t named = flows_out + flows_in;
    if (named > 0)
      fit = std::min(
          fit, (holdings_[r].tags - std::min<uint64_t>(holdings_[r].tags, flows_out)) / named);
  }
  return static_cast<uint32_t>(fit);
}

Result<SlotPlan> SlotPlan::make(topology::Topology topology, std::vector<Holding> holdings) {
  if (holdings.size() != static_cast<size_t>(topology.ranks())) {
    return Status::error(Code::kInternal, "slot plan: %zu holdings for %d ranks", holdings.size(),
                         topology.ranks());
  }
  SlotPlan plan(std::move(topology), std::move(holdings));
  // Four slots keep a flow moving while credits travel; below that, smaller cells serve better
  // than fewer slots.
  for (const uint32_t wanted : {4U, 2U, 1U}) {
    for (uint64_t cell = kMaxCellBytes; cell >= kMinCellBytes; cell /= 2) {
      const uint32_t slots = plan.slots_that_fit(stride_of(cell));
      if (slots < wanted) continue;
      plan.cell_bytes_ = cell;
      plan.stride_ = stride_of(cell);
      plan.slots_ = slots;
      return plan;
    }
  }
  const auto least = std::min_element(plan.holdings_.begin(), plan.holdings_.end(),
                                      [](const Holding& a, const Holding& b) {
                                        return std::min(a.staging_bytes, a.landing_bytes) <
                                               std::min(b.staging_bytes, b.landing_bytes);
                                      });
  return Status::error(
      Code::kUnavailable,
      "too little buffer memory for %d ranks: rank %td has %llu KiB left; raise "
      "RAILYARD_BUFFER_MB or destroy communicators that are no longer used",
      plan.topology_.ranks(), least - plan.holdings_.begin(),
      static_cast<unsigned long long>(std::min(least->staging_bytes, least->landing_bytes) >> 10));
}

uint32_t SlotPlan::staging_slots(int) const {
  return static_cast<uint32_t>(topology_.ranks() - 1) * slots_;
}

uint32_t SlotPlan::landing_slots(int rank) const {
  return relayed_flows_[static_cast<size_t>(rank)] * slots_;
}

uint32_t SlotPlan::staging_slot(int src, int dst) const {
  return static_cast<uint32_t>(dst < src ? dst : dst - 1) * slots_;
}

uint32_t SlotPlan::landing_slot(int src, int dst) const {
  const int node = topology_.node_of(dst);
  const size_t position =
      static_cast<size_t>(node) * static_cast<size_t>(topology_.ranks()) + static_cast<size_t>(src);
  const auto members = static_cast<uint32_t>(topology_.members(node).size());
  const auto local = static_cast<uint32_t>(topology_.local_index(dst));
  return (source_position_[position] * members + local) * slots_;
}

uint64_t SlotPlan::staging_offset(int rank, uint32_t slot) const {
  return holdings_[static_cast<size_t>(rank)].staging_offset + slot * stride_;
}

uint64_t SlotPlan::landing_offset(int rank, uint32_t slot) const {
  return holdings_[static_cast<size_t>(rank)].landing_offset + slot * stride_;
}

uint32_t SlotPlan::landing_tag(int rank, uint32_t slot) const {
  return holdings_[static_cast<size_t>(rank)].first_tag + slot;
}

uint32_t SlotPlan::staging_tag(int rank, uint32_t slot) const {
  return landing_tag(rank, landing_slots(rank)) + slot;
}

uint32_t SlotPlan::broken_tag(int src, int dst) const {
  return staging_tag(src, staging_slots(src)) + staging_slot(src, dst) / slots_;
}

uint32_t SlotPlan::tags(int rank) const {
  return landing_slots(rank) + staging_slots(rank) + static_cast<uint32_t>(topology_.ranks() - 1);
}

}  // namespace railyard::exchange
