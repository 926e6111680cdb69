// SPDX-License-Identifier: Apache-2.0
//
// Which communicators are taken over, and that what ranks say of themselves survives the wire.
#include "comm/decision.h"

#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/stats.h"

namespace railyard::comm {
namespace {

using testing::HasSubstr;

using Cluster = std::vector<Introduction>;

/// One rank per letter, on the node of that name; all is well.
Cluster cluster(const std::string& nodes) {
  Cluster ranks;
  for (const char node : nodes) {
    Introduction rank;
    rank.place.host = rank.host_name = std::string(1, node);
    rank.nvlink = true;
    rank.settings = {"version=1", "RAILYARD_CTAS=4"};
    rank.transport = "tcp";
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

Decision decided(const Cluster& ranks, CommsMode mode) {
  std::vector<topology::Place> places;
  for (const Introduction& rank : ranks) places.push_back(rank.place);
  return decide(ranks, topology::Topology::build(places).take(), mode);
}

struct Case {
  const char* name;
  const char* nodes;
  CommsMode mode;
  std::function<void(Cluster&)> change;
  bool take_over, fault;
  const char* why;
};

class Decisions : public testing::TestWithParam<Case> {};

TEST_P(Decisions, FollowFromWhatAllSaid) {
  const Case& c = GetParam();
  Cluster ranks = cluster(c.nodes);
  if (c.change) c.change(ranks);
  const Decision decision = decided(ranks, c.mode);
  EXPECT_EQ(decision.take_over, c.take_over);
  EXPECT_EQ(decision.fault, c.fault);
  EXPECT_THAT(decision.why, HasSubstr(c.why));
}

const auto kNothing = [](Cluster&) {};

INSTANTIATE_TEST_SUITE_P(
    All, Decisions,
    testing::Values(
        Case{"Usual", "aabb", CommsMode::kAuto, kNothing, true, false, "2 nodes"},
        Case{"Unequal", "aab", CommsMode::kAuto, kNothing, true, false, "2 nodes"},
        Case{"OneNode", "aaaa", CommsMode::kAll, kNothing, false, false, "one node"},
        Case{"OneRankEach", "abcd", CommsMode::kAll, kNothing, false, false, "more than one rank"},
        Case{"Off", "aabb", CommsMode::kOff, kNothing, false, false, "RAILYARD_COMMS=off"},
        Case{"NoNvlink", "aabb", CommsMode::kAuto, [](Cluster& r) { r[3].nvlink = false; }, false,
             false, "rank 3 on b has no NVLink"},
        Case{"NoNvlinkNeeded", "aabb", CommsMode::kAll, [](Cluster& r) { r[3].nvlink = false; },
             true, false, "2 nodes"},
        Case{"NoNvlinkWhereAlone", "aab", CommsMode::kAuto, [](Cluster& r) { r[2].nvlink = false; },
             true, false, "2 nodes"},
        Case{"FabricSpans", "aabb", CommsMode::kAuto,
             [](Cluster& r) {
               for (Introduction& rank : r) rank.fabric = "x.1";
             },
             false, false, "rank 0 on a and rank 2 on b"},
        Case{"FabricPerNode", "aabb", CommsMode::kAuto,
             [](Cluster& r) {
               for (Introduction& rank : r) rank.fabric = rank.place.host;
             },
             true, false, "2 nodes"},
        Case{"Settings", "aabb", CommsMode::kAuto,
             [](Cluster& r) { r[2].settings[1] = "RAILYARD_CTAS=8"; }, false, true,
             "rank 0 on a has RAILYARD_CTAS=4, but rank 2 on b has RAILYARD_CTAS=8"},
        Case{"FewerSettings", "aabb", CommsMode::kAuto,
             [](Cluster& r) { r[1].settings.pop_back(); }, false, true, "rank 1 on a has nothing"},
        Case{"Trouble", "aabb", CommsMode::kAuto, [](Cluster& r) { r[1].trouble = "no driver"; },
             false, true, "rank 1 on a cannot take part: no driver"},
        Case{"TroubleThatDoesNotMatter", "aa", CommsMode::kAuto,
             [](Cluster& r) { r[1].trouble = "no driver"; }, false, false, "one node"},
        Case{"NoTransport", "aabb", CommsMode::kAuto, [](Cluster& r) { r[0].transport = ""; },
             false, true, "rank 0 on a has no transport"},
        Case{"OtherTransport", "aabb", CommsMode::kAuto,
             [](Cluster& r) { r[3].transport = "verbs"; }, false, true,
             "rank 3 on b would use transport verbs"}),
    [](const testing::TestParamInfo<Case>& each) { return each.param.name; });

Introduction full_introduction() {
  Introduction record = cluster("a").front();
  record.place.nics = {"0000:1a:00.0", "0000:9b:00.0"};
  record.place.nearest_nic = 1;
  record.place.rail_override = 3;
  record.process = make_secret().take();
  record.fabric = "f.1";
  record.trouble = "some";
  record.server = {net::SocketAddress::parse("10.0.0.1", 7).take(), make_secret().take(),
                   make_secret().take()};
  return record;
}

Offer full_offer() {
  Offer record;
  record.trouble = "t";
  record.address = {std::byte{1}, std::byte{2}};
  record.holding = {1, 2, 3, 4, 5, 6};
  record.staging = {make_secret().take(), device::MemoryKind::kDevice, 99};
  record.landing = {make_secret().take(), device::MemoryKind::kHost, 98};
  record.unix_name = "u";
  return record;
}

TEST(Records, SurviveTheWire) {
  const Introduction said = full_introduction();
  const auto heard = Introduction::decode(said.encode());
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->encode(), said.encode());
  EXPECT_EQ(heard->place.nics, said.place.nics);
  EXPECT_EQ(heard->place.rail_override, 3);
  EXPECT_EQ(heard->server.address.text(), "10.0.0.1:7");
  EXPECT_EQ(heard->settings, said.settings);
  EXPECT_TRUE(Introduction::decode(Introduction().encode())) << "without a server";

  const Offer offered = full_offer();
  const auto taken = Offer::decode(offered.encode());
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->encode(), offered.encode());
  EXPECT_EQ(taken->holding.tags, 6u);
  EXPECT_EQ(taken->staging.kind, device::MemoryKind::kDevice);
}

TEST(Records, AHoldingOutsideItsPoolsIsRefused) {
  const auto accepted = [](const exchange::Holding& holding) {
    Offer offer = full_offer();
    offer.holding = holding;
    return Offer::decode(offer.encode()).has_value();
  };
  EXPECT_TRUE(accepted({0, 99, 98, 0, 0, 0}));
  EXPECT_FALSE(accepted({1, 99, 0, 0, 0, 0}));
  EXPECT_FALSE(accepted({~uint64_t{0}, 2, 0, 0, 0, 0})) << "the sum wraps";
  EXPECT_FALSE(accepted({0, 0, 98, 1, 0, 0}));
  EXPECT_FALSE(accepted({0, 0, 0, 0, ~uint32_t{0}, 1}));
}

TEST(Records, NonsenseIsRefusedOrHarmless) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const wire::Bytes introduction = full_introduction().encode(), offer = full_offer().encode();
  for (int round = 0; round < 5000; ++round) {
    wire::Bytes bytes = round % 2 == 0 ? introduction : offer;
    for (size_t flips = random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 2 == 0) bytes.resize(random() % bytes.size());
    if (round % 2 == 0) {
      static_cast<void>(Introduction::decode(bytes));
    } else {
      static_cast<void>(Offer::decode(bytes));
    }
  }
  wire::Bytes longer = offer;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Offer::decode(longer));
}

TEST(Points, ChildrenHaveNamesOfTheirOwn) {
  MeetingPoint point;
  point.meeting = make_secret().take();
  EXPECT_EQ(point.child(3).meeting, point.child(3).meeting);
  EXPECT_NE(point.child(3).meeting, point.child(4).meeting);
  EXPECT_NE(point.child(3).child(0).meeting, point.child(0).child(3).meeting);
}

TEST(Statistics, AreOneLineOfJson) {
  Identity identity;
  identity.rank = 3;
  identity.ranks = 4;
  identity.nodes = 2;
  exchange::Statistics statistics;
  statistics.exchanges = 7;
  statistics.traffic = {};
  statistics.traffic.phase1_bytes = 11;
  statistics.traffic.self_messages = 12;
  const std::string line = statistics_line(identity, "tcp", statistics, {});
  EXPECT_THAT(line, testing::StartsWith("{\"transport\": \"tcp\", \"rank\": 3, \"ranks\": 4"));
  EXPECT_THAT(line, HasSubstr("\"phase1_bytes\": 11"));
  EXPECT_THAT(line, HasSubstr("\"self_messages\": 12,"));
  EXPECT_THAT(line, testing::EndsWith("}\n"));
}

TEST(Statistics, OfCommunicatorsLeftToNcclSayWhy) {
  EXPECT_EQ(left_line(1, 8, "no \"verbs\"\nhere"),
            "{\"rank\": 1, \"ranks\": 8, \"left\": \"no \\\"verbs\\\" here\"}\n");
}

}  // namespace
}  // namespace railyard::comm
