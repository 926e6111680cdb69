// SPDX-License-Identifier: Apache-2.0
//
// Nodes, rails and relays of clusters of many shapes.
#include "topology/topology.h"

#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace railyard::topology {
namespace {

using testing::ElementsAre;

std::vector<Place> hosts(std::initializer_list<const char*> names) {
  std::vector<Place> places;
  for (const char* name : names) {
    Place place;
    place.host = name;
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<int> list(std::span<const int> values) { return {values.begin(), values.end()}; }

Topology built(const std::vector<Place>& places) {
  Result<Topology> topology = Topology::build(places);
  EXPECT_TRUE(topology.ok()) << topology.status().message();
  return topology.take();
}

TEST(Topology, BlocksOfRanks) {
  const Topology t = built(hosts({"a", "a", "b", "b", "b"}));
  EXPECT_EQ(t.ranks(), 5);
  EXPECT_EQ(t.nodes(), 2);
  EXPECT_THAT(list(t.members(0)), ElementsAre(0, 1));
  EXPECT_THAT(list(t.members(1)), ElementsAre(2, 3, 4));
  EXPECT_EQ(t.local_index(4), 2);
  EXPECT_EQ(t.relay(0, 1), 2);
  EXPECT_EQ(t.relay(1, 1), 3);
  EXPECT_EQ(t.relay(4, 0), 0) << "no rank of a is on rail 2: local index 2 mod 2";
  EXPECT_THAT(t.sources_relayed_by(0), ElementsAre(2, 4));
  EXPECT_THAT(t.linked_to(0), ElementsAre(2, 4));
  EXPECT_THAT(t.linked_to(4), ElementsAre(0));
  EXPECT_THAT(t.sources_relayed_by(4), ElementsAre());
}

TEST(Topology, NodesAreNumberedByTheirLowestRank) {
  const Topology t = built(hosts({"z", "a", "z", "a"}));
  EXPECT_EQ(t.node_of(0), 0);
  EXPECT_EQ(t.node_of(1), 1);
  EXPECT_THAT(list(t.members(0)), ElementsAre(0, 2));
  EXPECT_TRUE(t.same_node(1, 3));
  EXPECT_EQ(t.relay(2, 1), 3);
}

TEST(Topology, RailsFollowNicsInPciOrder) {
  auto places = hosts({"a", "a", "b", "b"});
  const std::vector<std::string> shuffled = {"0000:9b:00.0", "0000:1a:00.0"};
  for (Place& place : places) place.nics = shuffled;
  places[0].nearest_nic = 0;
  places[1].nearest_nic = 1;
  places[2].nearest_nic = 1;
  places[3].nearest_nic = 0;
  const Topology t = built(places);
  EXPECT_EQ(t.rail(0), 1);
  EXPECT_EQ(t.rail(1), 0);
  EXPECT_EQ(t.relay(0, 1), 3);
  EXPECT_EQ(t.relay(1, 1), 2);
}

TEST(Topology, ANodeWhoseRanksSeeOneNicEachStillHasSeveralRails) {
  auto places = hosts({"a", "a", "b", "b"});
  const char* nics[] = {"0000:9b:00.0", "0000:1a:00.0", "0000:1a:00.0", "0000:9b:00.0"};
  for (size_t i = 0; i < places.size(); ++i) {
    places[i].nics = {nics[i]};
    places[i].nearest_nic = 0;
  }
  const Topology t = built(places);
  EXPECT_EQ(t.rail(0), 1);
  EXPECT_EQ(t.rail(1), 0);
}

TEST(Topology, RanksThatShareARailAreRelaysInTurn) {
  auto places = hosts({"a", "a", "a", "b", "b"});
  for (Place& place : places) place.rail_override = 5;
  const Topology t = built(places);
  EXPECT_EQ(t.relay(0, 1), 3);
  EXPECT_EQ(t.relay(1, 1), 4);
  EXPECT_EQ(t.relay(2, 1), 3);
  EXPECT_THAT(t.sources_relayed_by(3), ElementsAre(0, 2));
}

TEST(Topology, AnOverrideBeatsNics) {
  auto places = hosts({"a", "b"});
  places[0].nics = {"0000:1a:00.0"};
  places[0].nearest_nic = 0;
  places[0].rail_override = 3;
  EXPECT_EQ(built(places).rail(0), 3);
}

TEST(Topology, RefusesNonsense) {
  EXPECT_FALSE(Topology::build({}).ok());
  auto places = hosts({"a", "b"});
  places[1].nearest_nic = 0;
  const auto result = Topology::build(places);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.status().message(), testing::HasSubstr("rank 1"));
}

TEST(Topology, EverySourceHasExactlyOneRelayPerNode) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<Place> places(1 + random() % 24);
    for (Place& place : places) {
      place.host = std::string(1, static_cast<char>('a' + random() % 5));
      if (random() % 2 == 0) place.rail_override = static_cast<int>(random() % 4);
    }
    const Topology t = built(places);
    for (int node = 0; node < t.nodes(); ++node) {
      std::multiset<int> relayed;
      for (const int relay : t.members(node)) {
        for (const int source : t.sources_relayed_by(relay)) {
          EXPECT_EQ(t.relay(source, node), relay);
          relayed.insert(source);
        }
      }
      EXPECT_EQ(relayed.size(), static_cast<size_t>(t.ranks()) - t.members(node).size());
      EXPECT_EQ(std::set<int>(relayed.begin(), relayed.end()).size(), relayed.size());
    }
  }
}

}  // namespace
}  // namespace railyard::topology
