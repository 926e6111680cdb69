// SPDX-License-Identifier: Apache-2.0
//
// Communicators made from others, and from ids that only some ranks know: all ranks must come to
// the same meeting.
#include "base/config.h"
#include "comm/rendezvous.h"
#include "join_fixture.h"

namespace railyard::comm {
namespace {

class Children : public Joins {
 protected:
  /// Joins all managers and binds what comes out to handle_of(rank).
  void make_parent(const std::string& hosts, const Environment& more = {}) {
    managers_ = processes(hosts, more);
    ncclUniqueId id = blank_id();
    managers_[0]->mark(&id);
    parent_ = join_all(managers_, id);
    ASSERT_EQ(taken_over(parent_), static_cast<int>(hosts.size()));
    for (size_t r = 0; r < parent_.size(); ++r) {
      managers_[r]->bind(handle_of(static_cast<int>(r)), parent_[r]);
    }
  }
  std::vector<Outcome> shrink(std::vector<int> excluded) {
    std::vector<std::shared_ptr<Joining>> joinings;
    for (int rank = 0; rank < static_cast<int>(managers_.size()); ++rank) {
      if (std::count(excluded.begin(), excluded.end(), rank) != 0) continue;
      std::reverse(excluded.begin(), excluded.end());  // NCCL sorts it, callers need not
      joinings.push_back(at(rank).join_shrink(handle_of(rank), excluded));
    }
    return outcomes(joinings);
  }
  std::vector<Outcome> split_all(int color = 0) {
    std::vector<std::shared_ptr<Joining>> joinings;
    for (int rank = 0; rank < static_cast<int>(managers_.size()); ++rank) {
      joinings.push_back(at(rank).join_split(handle_of(rank), color, 0));
    }
    return outcomes(joinings);
  }
  Manager& at(int rank) { return *managers_[static_cast<size_t>(rank)]; }

  std::vector<Manager*> managers_;
  std::vector<Outcome> parent_;
};

TEST_F(Children, SurvivorsMeetWithoutTheProcessThatMadeTheId) {
  make_parent("aabb");
  for (int round = 0; round < 2; ++round) {  // the same exclusion twice: two meetings
    const auto rest = shrink({0});
    ASSERT_EQ(taken_over(rest), 3);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(rest[static_cast<size_t>(rank)]->rank(), rank);
      EXPECT_EQ(rest[static_cast<size_t>(rank)]->ranks(), 3);
    }
    destroy_all(rest);
  }
  destroy_all(shrink({3, 1}));  // one on each node: nothing to take over, but it is agreed
  // Those who were left out have not lost step.
  const auto split = split_all();
  EXPECT_EQ(taken_over(split), 4);
  destroy_all(split);
  destroy_all(parent_);
}

TEST_F(Children, ListsThatNcclRefusesAreNotMetAbout) {
  make_parent("aab");
  const std::vector<int> self = {1}, none, outside = {3}, two = {0, 2};
  EXPECT_EQ(at(1).join_shrink(handle_of(1), self), nullptr);
  EXPECT_EQ(at(1).join_shrink(handle_of(1), none), nullptr);
  EXPECT_EQ(at(1).join_shrink(handle_of(1), outside), nullptr);
  EXPECT_EQ(at(1).join_shrink(handle_of(1), two), nullptr) << "nobody left to meet";
  EXPECT_EQ(at(1).join_shrink(handle_of(7), {&self[0], 1}), nullptr) << "unknown parent";
  EXPECT_EQ(at(1).join_grow(handle_of(1), 3), nullptr);
  destroy_all(parent_);
}

TEST_F(Children, NewRanksComeToAGrowth) {
  make_parent("aabb");
  const auto newcomers = processes("bb");
  destroy_all(split_all());  // children count
  ncclUniqueId id = blank_id();
  at(2).mark_growth(handle_of(2), &id);
  EXPECT_NE(std::memcmp(id.internal, blank_id().internal, sizeof id.internal), 0);
  std::vector<std::shared_ptr<Joining>> joinings;
  for (int rank = 0; rank < 6; ++rank) {
    on_device(rank, [&] {
      joinings.push_back(rank < 4
                             ? at(rank).join_grow(handle_of(rank), 6)
                             : newcomers[static_cast<size_t>(rank - 4)]->join({&id, 1}, 6, rank));
    });
  }
  const auto grown = outcomes(joinings);
  ASSERT_EQ(taken_over(grown), 6);
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(grown[static_cast<size_t>(rank)]->rank(), rank);
  destroy_all(grown);
  destroy_all(split_all());
  destroy_all(parent_);
}

TEST_F(Children, GrowthOfAnUnknownParentIsNotMarked) {
  Manager& manager = *processes("a")[0];
  ncclUniqueId id = blank_id();
  manager.mark_growth(handle_of(0), &id);
  EXPECT_EQ(std::memcmp(id.internal, blank_id().internal, sizeof id.internal), 0);
}

TEST_F(Children, OfSeveralIdsTheFirstMarkedOneCounts) {
  const auto managers = processes("aab");
  ncclUniqueId ids[3] = {blank_id(), blank_id(), blank_id()};
  managers[1]->mark(&ids[1]);
  managers[2]->mark(&ids[2]);
  std::vector<std::shared_ptr<Joining>> joinings;
  for (int rank = 0; rank < 3; ++rank) {
    on_device(rank,
              [&] { joinings.push_back(managers[static_cast<size_t>(rank)]->join(ids, 3, rank)); });
  }
  const auto all = outcomes(joinings);
  EXPECT_EQ(taken_over(all), 3);
  destroy_all(all);
}

/// Strangers: made without railyard, known by their hash only.
class Strangers : public Children {
 protected:
  /// A place where nobody listens.
  static Environment at_free_port(const char* join_s = "30") {
    const auto listener = net::listen_on(net::SocketAddress::parse("127.0.0.1", 0).take());
    EXPECT_TRUE(listener.ok());
    return {{"RAILYARD_RENDEZVOUS", listener->address.text()}, {"RAILYARD_JOIN_S", join_s}};
  }
  void adopt_all(uint64_t hash) {
    const int ranks = static_cast<int>(managers_.size());
    for (int rank = 0; rank < ranks; ++rank) {
      on_device(rank, [&] {
        EXPECT_TRUE(at(rank).adopt(handle_of(rank), {hash, rank, ranks, rank}));
      });
    }
  }
};

TEST_F(Strangers, AreNeverTakenOverButTheirChildrenAre) {
  managers_ = processes("aabb", at_free_port());
  adopt_all(0x1234);
  for (int rank = 0; rank < 4; ++rank) {
    const auto known = at(rank).find(handle_of(rank));
    ASSERT_NE(known, nullptr);
    EXPECT_EQ(known->engine(), nullptr);
    EXPECT_EQ(known->rank(), rank);
  }
  for (int round = 0; round < 2; ++round) {
    const auto children = split_all();
    ASSERT_EQ(taken_over(children), 4);
    for (int rank = 0; rank < 4; ++rank) {
      at(rank).bind(handle_of(10 + rank), children[static_cast<size_t>(rank)]);
    }
    std::vector<std::shared_ptr<Joining>> joinings;
    for (int rank = 0; rank < 4; ++rank) {
      joinings.push_back(at(rank).join_split(handle_of(10 + rank), 0, 0));
    }
    const auto grandchildren = outcomes(joinings);
    EXPECT_EQ(taken_over(grandchildren), 4);
    destroy_all(grandchildren);
    destroy_all(children);
  }
}

TEST_F(Strangers, OthersAreTurnedAwayAtTheRendezvous) {
  managers_ = processes("aabb", at_free_port("2"));
  for (int rank = 0; rank < 4; ++rank) {
    on_device(rank, [&] {
      const uint64_t hash = rank < 3 ? 0x1234 : 0x4321;
      EXPECT_TRUE(at(rank).adopt(handle_of(rank), {hash, rank, 4, rank}));
    });
  }
  testing::internal::CaptureStderr();
  const auto children = split_all();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(taken_over(children), 0);
  EXPECT_THAT(log, HasSubstr("rank 3 did not come in time"));
  EXPECT_THAT(log, HasSubstr("rank 3 of 4: the communicator stays with NCCL"));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(at(rank).join_split(handle_of(rank), 0, 0), nullptr) << "waiting once is enough";
  }
}

TEST_F(Strangers, RanksOfASecondOneWaitForTheirRankZero) {
  managers_ = processes("aabb", at_free_port());
  adopt_all(1);
  destroy_all(split_all());  // the server is there and knows the first one
  adopt_all(2);
  std::vector<std::shared_ptr<Joining>> joinings;
  for (const int rank : {1, 2, 3}) joinings.push_back(at(rank).join_split(handle_of(rank), 0, 0));
  joinings.push_back(at(0).join_split(handle_of(0), 0, 0));
  const auto children = outcomes(joinings);
  EXPECT_EQ(taken_over(children), 4);
  destroy_all(children);
}

TEST_F(Strangers, APortThatIsTakenLeavesAllToNccl) {
  const auto taken = net::listen_on(net::SocketAddress::parse("127.0.0.1", 0).take());
  managers_ =
      processes("aab", {{"RAILYARD_RENDEZVOUS", taken->address.text()}, {"RAILYARD_JOIN_S", "1"}});
  adopt_all(7);
  testing::internal::CaptureStderr();
  // Only the rank that would open it knows at once; the others would wait for an answer.
  const auto child = at(0).join_split(handle_of(0), 0, 0)->wait();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(child, nullptr);
  EXPECT_THAT(log, HasSubstr("no rendezvous at " + taken->address.text()));
  EXPECT_THAT(log, HasSubstr("RAILYARD_RENDEZVOUS"));
}

TEST_F(Strangers, SurvivorsAndNewRanksOfStrangersMeetToo) {
  managers_ = processes("aabb", at_free_port());
  adopt_all(99);
  const auto rest = shrink({3});
  EXPECT_EQ(taken_over(rest), 3);
  destroy_all(rest);
  const auto newcomer = processes("b");
  ncclUniqueId id = blank_id();
  at(1).mark_growth(handle_of(1), &id);
  std::vector<std::shared_ptr<Joining>> joinings;
  on_device(4, [&] { joinings.push_back(newcomer[0]->join({&id, 1}, 5, 4)); });
  for (int rank = 0; rank < 4; ++rank) joinings.push_back(at(rank).join_grow(handle_of(rank), 5));
  const auto grown = outcomes(joinings);
  EXPECT_EQ(taken_over(grown), 5);
  destroy_all(grown);
}

TEST(Rendezvous, IsNamedOrFollowsFromTheStore) {
  const auto place = [](const Environment& environment) -> std::string {
    const auto found = find_rendezvous(*parse_config(environment), NcclEnv::load(environment, {}));
    return found ? found->host + " " + std::to_string(found->port) : "none";
  };
  EXPECT_EQ(place({}), "none");
  EXPECT_EQ(place({{"MASTER_ADDR", "node-0"}}), "none");
  EXPECT_EQ(place({{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "29500"}}), "node-0 30211");
  EXPECT_EQ(place({{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "65000"}}), "node-0 64289");
  EXPECT_EQ(place({{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "many"}}), "none");
  EXPECT_EQ(place({{"RAILYARD_RENDEZVOUS", "[fd00::1]:99"},
                   {"MASTER_ADDR", "node-0"},
                   {"MASTER_PORT", "29500"}}),
            "fd00::1 99");
  for (const char* wrong : {"node-0", "node-0:", ":99", "fd00::1:99", "node-0:70000", "[]:1"}) {
    EXPECT_FALSE(parse_config({{"RAILYARD_RENDEZVOUS", wrong}}).ok()) << wrong;
  }
}

TEST(Rendezvous, IsOpenToAllWhereTheHostCallsItselfLoopback) {
  const auto at = [](const char* host, const char* resolved) {
    return listening_address({host, 99}, net::SocketAddress::parse(resolved, 99).take()).text();
  };
  EXPECT_EQ(at("node-0", "127.0.1.1"), "0.0.0.0:99");
  EXPECT_EQ(at("node-0", "::1"), "[::]:99");
  EXPECT_EQ(at("node-0", "10.0.0.1"), "10.0.0.1:99");
  EXPECT_EQ(at("127.0.0.1", "127.0.0.1"), "127.0.0.1:99");
  EXPECT_EQ(at("localhost", "127.0.0.1"), "127.0.0.1:99");
}

TEST(Rendezvous, KeysOfDifferentCommunicatorsDiffer) {
  const MeetingPoint one = point_of_hash(1, 4);
  for (const MeetingPoint& other : {point_of_hash(2, 4), point_of_hash(1, 5)}) {
    EXPECT_NE(one.key, other.key);
    EXPECT_NE(one.meeting, other.meeting);
  }
  EXPECT_NE(one.key, one.meeting);
  EXPECT_EQ(one.key, point_of_hash(1, 4).key);
  EXPECT_FALSE(resolve({"no-such-host.invalid", 1}).ok());
}

}  // namespace
}  // namespace railyard::comm
