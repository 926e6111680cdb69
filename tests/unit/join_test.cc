// SPDX-License-Identifier: Apache-2.0
//
// Who joins, who does not, and what is said about it.
#include "join_fixture.h"

namespace railyard::comm {
namespace {

TEST_F(Joins, RanksOfSeveralProcesses) {
  const auto managers = processes("aabb");
  ncclUniqueId id = blank_id();
  managers[0]->mark(&id);
  for (int round = 0; round < 2; ++round) {
    if (round == 1) managers[2]->mark(&(id = blank_id()));
    const auto outcomes = join_all(managers, id);
    ASSERT_EQ(taken_over(outcomes), 4);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(outcomes[static_cast<size_t>(rank)]->rank(), rank);
      EXPECT_EQ(outcomes[static_cast<size_t>(rank)]->ranks(), 4);
      EXPECT_EQ(outcomes[static_cast<size_t>(rank)]->order(), outcomes[0]->order());
    }
    destroy_all(outcomes);
  }
}

TEST_F(Joins, RanksOfOneProcess) {
  Manager& manager = manager_for(usual({{"RAILYARD_HOSTID", "a,a,a,b,b"}}));
  ncclUniqueId id = blank_id();
  manager.mark(&id);
  const auto outcomes = join_all({&manager, &manager, &manager, &manager, &manager}, id);
  ASSERT_EQ(taken_over(outcomes), 5);
  destroy_all(outcomes);
}

TEST_F(Joins, OneNodeStaysWithNcclButIsKnown) {
  const auto managers = processes("aaa");
  ncclUniqueId id = blank_id();
  managers[0]->mark(&id);
  const auto outcomes = join_all(managers, id);
  EXPECT_EQ(taken_over(outcomes), 0);
  for (const Outcome& outcome : outcomes) EXPECT_NE(outcome, nullptr);
}

TEST_F(Joins, SplitsAreJudgedByColour) {
  const auto managers = processes("aabbcc");
  ncclUniqueId id = blank_id();
  managers[0]->mark(&id);
  const auto parents = join_all(managers, id);
  ASSERT_EQ(taken_over(parents), 6);
  for (int rank = 0; rank < 6; ++rank) {
    managers[static_cast<size_t>(rank)]->bind(handle_of(rank), parents[static_cast<size_t>(rank)]);
  }
  // Colour 7: ranks 3, 1, 0 in that order, on two nodes. Colour 8: ranks 4 and 5, one node.
  const int colors[] = {7, 7, NCCL_SPLIT_NOCOLOR, 7, 8, 8}, keys[] = {5, 4, 0, -3, 0, 0};
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Joining>> joinings;
    for (int rank = 5; rank >= 0; --rank) {
      joinings.insert(joinings.begin(), managers[static_cast<size_t>(rank)]->join_split(
                                            handle_of(rank), colors[rank], keys[rank]));
    }
    const auto children = outcomes(joinings);
    EXPECT_EQ(children[2], nullptr);
    ASSERT_EQ(taken_over(children), 3);
    EXPECT_EQ(children[3]->rank(), 0);
    EXPECT_EQ(children[1]->rank(), 1);
    EXPECT_EQ(children[0]->rank(), 2);
    EXPECT_EQ(children[0]->ranks(), 3);
    EXPECT_NE(children[0]->order(), parents[0]->order());
    ASSERT_NE(children[4], nullptr);
    EXPECT_EQ(children[4]->engine(), nullptr);
    EXPECT_NE(children[4]->order(), children[0]->order());

    // A child can be split again, also one that stays with NCCL.
    managers[4]->bind(handle_of(10), children[4]);
    managers[5]->bind(handle_of(11), children[5]);
    const auto grandchildren = outcomes({managers[4]->join_split(handle_of(10), 0, 0),
                                         managers[5]->join_split(handle_of(11), 0, 0)});
    EXPECT_NE(grandchildren[0], nullptr);
    EXPECT_NE(grandchildren[1], nullptr);
    destroy_all(children);
  }
  destroy_all(parents);
}

TEST_F(Joins, ASplitOfAnUnknownParentStaysWithNccl) {
  EXPECT_EQ(processes("a")[0]->join_split(handle_of(99), 0, 0), nullptr);
}

TEST_F(Joins, MissingRanksAreNamed) {
  const auto managers = processes("aabb", {{"RAILYARD_JOIN_S", "1"}});
  ncclUniqueId id = blank_id();
  managers[0]->mark(&id);
  testing::internal::CaptureStderr();
  std::vector<std::shared_ptr<Joining>> joinings;
  for (const int rank : {1, 3}) {
    on_device(rank, [&] {
      joinings.push_back(managers[static_cast<size_t>(rank)]->join(std::span(&id, 1), 4, rank));
    });
  }
  const auto results = outcomes(joinings);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(results[0], nullptr);
  EXPECT_EQ(results[1], nullptr);
  EXPECT_THAT(log,
              HasSubstr("warning: rank 1 of 4: the communicator stays with NCCL: ranks 0 and 2 "
                        "did not come in time"));
}

TEST_F(Joins, ARankThatCannotTakePartSaysWhy) {
  auto managers = processes("aabb");
  managers[2] = &manager_for(usual({{"RAILYARD_HOSTID", "b,b"}}));
  ncclUniqueId id = blank_id();
  managers[0]->mark(&id);
  testing::internal::CaptureStderr();
  const auto outcomes = join_all(managers, id);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(taken_over(outcomes), 0);
  EXPECT_THAT(log, HasSubstr("cannot take part: RAILYARD_HOSTID has no entry for CUDA device 2"));
}

TEST_F(Joins, PoolsThatAreUsedUpAreTold) {
  const auto managers = processes("aabb", {{"RAILYARD_BUFFER_MB", "1"}});
  std::vector<std::vector<Outcome>> all;
  testing::internal::CaptureStderr();
  while (all.empty() || taken_over(all.back()) != 0) {
    ncclUniqueId id = blank_id();
    managers[0]->mark(&id);
    all.push_back(join_all(managers, id));
    ASSERT_TRUE(taken_over(all.back()) == 4 || taken_over(all.back()) == 0);
    ASSERT_LT(all.size(), 100u);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_GT(all.size(), 2u);
  EXPECT_THAT(log, HasSubstr("RAILYARD_BUFFER_MB"));
  for (const auto& outcomes : all) destroy_all(outcomes);

  ncclUniqueId id = blank_id();
  managers[0]->mark(&id);
  const auto again = join_all(managers, id);
  EXPECT_EQ(taken_over(again), 4) << "what has been given back can be used again";
  destroy_all(again);
}

TEST_F(Joins, StopEndsADestroyThatWaits) {
  const auto managers = processes("aab");
  ncclUniqueId id = blank_id();
  managers[0]->mark(&id);
  auto outcomes = join_all(managers, id);
  ASSERT_EQ(taken_over(outcomes), 3);
  // Ranks of a node say farewell together: rank 0 alone waits for rank 1.
  std::thread waiting([&] { outcomes[0]->destroy(); });
  outcomes[0]->stop();
  waiting.join();
  outcomes[1]->stop();
  outcomes[2]->stop();
}

TEST_F(Joins, HandlesAreFoundUntilUnbound) {
  const auto managers = processes("aa");
  EXPECT_EQ(managers[0]->find(handle_of(0)), nullptr);
  ncclUniqueId id = blank_id();
  managers[0]->mark(&id);
  const auto outcomes = join_all(managers, id);
  managers[0]->bind(handle_of(0), outcomes[0]);
  EXPECT_EQ(managers[0]->find(handle_of(0)), outcomes[0]);
  EXPECT_EQ(managers[0]->find(handle_of(1)), nullptr);
  EXPECT_EQ(managers[0]->unbind(handle_of(0)), outcomes[0]);
  EXPECT_EQ(managers[0]->find(handle_of(0)), nullptr);
  EXPECT_EQ(managers[0]->unbind(handle_of(0)), nullptr);
}

TEST(Ids, AreLeftAloneWhereAMarkWouldBeWrong) {
  const ncclUniqueId blank = blank_id();
  const auto same = [](const ncclUniqueId& a, const ncclUniqueId& b) {
    return std::memcmp(a.internal, b.internal, sizeof a.internal) == 0;
  };
  ncclUniqueId id = blank;
  manager_for(usual({{"NCCL_COMM_ID", "10.0.0.1:99"}})).mark(&id);
  EXPECT_TRUE(same(id, blank));

  ncclUniqueId used = blank;
  used.internal[127] = 1;
  id = used;
  Manager& manager = manager_for(usual());
  manager.mark(&id);
  EXPECT_TRUE(same(id, used));
  EXPECT_EQ(manager.join(std::span(&blank, 1), 2, 0), nullptr);

  id = blank;
  manager.mark(&id);
  EXPECT_FALSE(same(id, blank));
  EXPECT_EQ(std::memcmp(id.internal, blank.internal, 64), 0) << "NCCL's part is NCCL's";
  EXPECT_EQ(manager.join(std::span(&id, 1), 1, 0), nullptr) << "nobody to meet";
}

TEST(Switches, OffAndUnusableConfigurationsDoNothing) {
  for (const Environment& environment :
       {Environment{{"RAILYARD_COMMS", "off"}}, Environment{{"RAILYARD_CTAS", "many"}}}) {
    Manager& manager = manager_for(environment);
    EXPECT_FALSE(manager.enabled());
    ncclUniqueId id = blank_id();
    const ncclUniqueId before = id;
    manager.mark(&id);
    EXPECT_EQ(std::memcmp(id.internal, before.internal, sizeof id.internal), 0);
    EXPECT_EQ(manager.join(std::span(&id, 1), 2, 0), nullptr);
  }
  EXPECT_TRUE(manager_for(usual()).enabled());
}

}  // namespace
}  // namespace railyard::comm
