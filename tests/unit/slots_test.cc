// SPDX-License-Identifier: Apache-2.0
#include "exchange/slots.h"

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "exchange/segment.h"

namespace railyard::exchange {
namespace {

topology::Topology layout(const std::vector<int>& node_of_rank) {
  std::vector<topology::Place> places;
  for (const int node : node_of_rank) {
    topology::Place place;
    place.host = "node" + std::to_string(node);
    places.push_back(place);
  }
  return topology::Topology::build(places).take();
}

std::vector<Holding> holdings(size_t ranks, uint64_t bytes) {
  std::vector<Holding> result(ranks);
  uint32_t tag = 0;
  for (Holding& holding : result) {
    holding = {4096, bytes, 8192, bytes, tag, 100'000};
    tag += 100'000;
  }
  return result;
}

TEST(SlotPlanTest, EverySlotOfARankIsItsOwn) {
  const topology::Topology topology = layout({0, 1, 0, 1, 1, 2});
  const SlotPlan plan = SlotPlan::make(topology, holdings(6, 8 << 20)).take();
  std::map<std::pair<int, uint32_t>, std::string> staging, landing, tags;
  const auto claim = [](auto& owners, int rank, uint32_t name, const std::string& who) {
    const auto [known, fresh] = owners.emplace(std::make_pair(rank, name), who);
    EXPECT_TRUE(fresh) << name << " of rank " << rank << " belongs to " << known->second
                       << " and to " << who;
  };
  for (int src = 0; src < 6; ++src) {
    for (int dst = 0; dst < 6; ++dst) {
      if (src == dst) continue;
      const std::string who = std::to_string(src) + "->" + std::to_string(dst);
      claim(tags, src, plan.broken_tag(src, dst), who);
      for (uint32_t i = 0; i < plan.slots_per_flow(); ++i) {
        const uint32_t slot = plan.staging_slot(src, dst) + i;
        EXPECT_LT(slot, plan.staging_slots(src));
        claim(staging, src, slot, who);
        claim(tags, src, plan.staging_tag(src, slot), who);
        if (topology.same_node(src, dst)) continue;
        const int relay = topology.relay(src, topology.node_of(dst));
        const uint32_t land = plan.landing_slot(src, dst) + i;
        EXPECT_LT(land, plan.landing_slots(relay));
        claim(landing, relay, land, who);
        claim(tags, relay, plan.landing_tag(relay, land), who);
      }
    }
  }
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_LE(plan.staging_bytes(rank), 8U << 20);
    EXPECT_LE(plan.landing_bytes(rank), 8U << 20);
    EXPECT_EQ(plan.staging_offset(rank, 1) - plan.staging_offset(rank, 0), plan.stride());
  }
}

TEST(SlotPlanTest, CellsShrinkBeforeFlowsStarve) {
  const topology::Topology topology = layout(std::vector<int>{0, 0, 1, 1});
  EXPECT_EQ(SlotPlan::make(topology, holdings(4, 32 << 20))->cell_bytes(), kMaxCellBytes);
  const SlotPlan small = SlotPlan::make(topology, holdings(4, 256 << 10)).take();
  EXPECT_GE(small.slots_per_flow(), 4U);
  EXPECT_LT(small.cell_bytes(), kMaxCellBytes);
}

TEST(SlotPlanTest, TooLittleMemoryNamesTheRank) {
  const topology::Topology topology = layout(std::vector<int>{0, 0, 1, 1});
  std::vector<Holding> holds = holdings(4, 32 << 20);
  holds[2].landing_bytes = 100;
  const Result<SlotPlan> plan = SlotPlan::make(topology, holds);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kUnavailable);
  EXPECT_NE(plan.status().message().find("rank 2"), std::string::npos) << plan.status().message();
}

TEST(SegmentTest, PartsDoNotOverlap) {
  const topology::Topology topology = layout({0, 0, 1, 1, 1});
  const SlotPlan plan = SlotPlan::make(topology, holdings(5, 8 << 20)).take();
  const Segment segment(topology, plan, 1);
  const uint64_t words = plan.slots_per_flow() * sizeof(uint64_t);
  std::map<uint64_t, uint64_t> parts;  // start -> bytes
  for (int l = 0; l < 3; ++l) {
    parts[segment.sleeping(l)] = 4;
    parts[segment.farewell(l)] = 4;
    parts[segment.doorbell(l)] = sizeof(kernels::Doorbell);
    parts[segment.status(l)] = sizeof(kernels::RankStatus);
    parts[segment.post_ring(l)] = segment.post_entries() * sizeof(kernels::RingEntry);
    for (int peer = 0; peer < 5; ++peer) {
      parts[segment.credit(l, peer)] = words;
      parts[segment.arrival(l, peer)] = words;
    }
    for (int d = 0; d < 3; ++d) {
      parts[segment.release_ring(l, d)] = segment.release_entries(l) * sizeof(kernels::RingEntry);
    }
  }
  EXPECT_EQ(parts.size(), 3U * (5 + 10 + 3));
  uint64_t end = 0;
  for (const auto& [start, bytes] : parts) {
    EXPECT_GE(start, end);
    end = start + bytes;
  }
  EXPECT_LE(end, segment.bytes());
}

}  // namespace
}  // namespace railyard::exchange
