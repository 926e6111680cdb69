// SPDX-License-Identifier: Apache-2.0
//
// Non-blocking communicators: nothing of ours makes a caller wait, and what is under way shows.
#include "intercept/blocking.h"
#include "intercept_fakes.h"

namespace railyard::intercept {
namespace {

class NonBlockingTest : public InterceptTest {
 protected:
  NonBlockingTest() { config_.blocking = 0; }

  std::shared_ptr<FakeJoining> joins(std::string label, bool finished) {
    auto joining = std::make_shared<FakeJoining>();
    joining->communicator = std::make_shared<FakeCommunicator>(std::move(label), 0);
    joining->finished = finished;
    manager_.next = joining;
    return joining;
  }
  std::shared_ptr<FakeCommunicator> add_nonblocking(int number, std::string label) {
    auto communicator = add(number, std::move(label), 0);
    communicator->standing.blocking = false;
    return communicator;
  }
  ncclResult_t init() { return life_.init_rank_config(&comm_, 4, ncclUniqueId{}, 1, &config_); }
  ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = ncclNumResults;
    EXPECT_EQ(life_.get_async_error(comm, &state), ncclSuccess);
    return state;
  }
  ncclResult_t send(ncclComm_t comm) {
    return group_.send(memory_, 1, ncclInt, 2, comm, stream(1));
  }

  ncclConfig_t config_ = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm_ = nullptr;
};

TEST_F(NonBlockingTest, AJoinThatTakesLongerThanNcclIsNotWaitedFor) {
  const auto joining = joins("ours", false);
  EXPECT_EQ(init(), ncclInProgress);
  EXPECT_EQ(state_of(comm_), ncclInProgress);
  EXPECT_EQ(send(comm_), ncclInvalidArgument);
  EXPECT_EQ(life_.destroy(comm_), ncclInvalidArgument);
  EXPECT_EQ(life_.finalize(comm_), ncclInvalidArgument);
  EXPECT_THAT(taken(), ElementsAre("join", "create"));
  joining->finished = true;
  EXPECT_EQ(state_of(comm_), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("joined", "bind 1"));
  EXPECT_EQ(send(comm_), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("launch ours"));
}

TEST_F(NonBlockingTest, GroupedCreationsAreNotWaitedForEither) {
  group_.start();
  const auto joining = joins("ours", false);
  EXPECT_EQ(init(), ncclSuccess);
  EXPECT_EQ(group_.end(), ncclInProgress);
  EXPECT_EQ(state_of(comm_), ncclInProgress);
  joining->finished = true;
  EXPECT_EQ(state_of(comm_), ncclSuccess);
}

TEST_F(NonBlockingTest, ABlockingCreationWaits) {
  config_.blocking = 1;
  joins("ours", false);
  EXPECT_EQ(init(), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join", "create", "joined", "bind 1"));
  runtime_.always_blocking = false;
  joins("ours", false);
  EXPECT_EQ(init(), ncclInProgress);
}

TEST_F(NonBlockingTest, ChildrenInheritWhatTheyAreNotTold) {
  add_nonblocking(9, "parent");
  joins("child", false);
  EXPECT_EQ(life_.split(handle(9), 0, 0, &comm_, nullptr), ncclInProgress);
  EXPECT_EQ(send(handle(9)), ncclInvalidArgument);
  life_.abort(handle(9));
  add_nonblocking(9, "parent");
  taken();
  joins("child", false);
  ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(life_.split(handle(9), 0, 0, &comm_, &blocking), ncclInProgress);
  EXPECT_THAT(taken(), ElementsAre("join split of 9", "create")) << "the call is the parent's";
}

TEST_F(NonBlockingTest, ANonBlockingChildOfABlockingParent) {
  add(9, "parent", 0);
  joins("child", false);
  EXPECT_EQ(life_.split(handle(9), 0, 0, &comm_, &config_), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join split of 9", "create", "joined", "bind 1"));
  EXPECT_FALSE(manager_.find(comm_)->standing.blocking);
  joins("grown", false);
  EXPECT_EQ(life_.grow(handle(9), 8, nullptr, -1, &comm_, &config_), ncclInProgress);
  EXPECT_EQ(state_of(comm_), ncclInProgress);
}

TEST_F(NonBlockingTest, AChildMayBeAskedAsSoonAsItIsThere) {
  add_nonblocking(9, "parent");
  const auto joining = joins("child", false);
  nccl_.create_result = ncclInProgress;
  EXPECT_EQ(life_.split(handle(9), 0, 0, &comm_, nullptr), ncclInProgress);
  EXPECT_EQ(state_of(comm_), ncclInProgress);
  EXPECT_EQ(send(comm_), ncclInvalidArgument);
  joining->finished = true;
  EXPECT_EQ(state_of(comm_), ncclSuccess);
  EXPECT_EQ(state_of(handle(9)), ncclSuccess);
  EXPECT_EQ(send(comm_), ncclSuccess);
}

TEST_F(NonBlockingTest, NoHandleIsNotOneThatIsBeingMade) {
  add_nonblocking(9, "parent");
  const auto joining = joins("child", false);
  library_.ncclCommSplit = [](ncclComm_t, int, int, ncclComm_t* child, ncclConfig_t*) {
    return *child = nullptr, ncclInProgress;
  };
  EXPECT_EQ(life_.split(handle(9), 0, 0, &comm_, nullptr), ncclInProgress);
  EXPECT_EQ(life_.destroy(nullptr), ncclSuccess);
  EXPECT_EQ(life_.abort(nullptr), ncclSuccess);
  EXPECT_EQ(state_of(handle(9)), ncclInProgress) << "the creation is still awaited";
  comm_ = handle(5);
  joining->finished = true;
  taken();
  EXPECT_EQ(state_of(handle(9)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("joined", "bind 5"));
}

TEST_F(NonBlockingTest, FinalizeSaysFarewellInTheBackground) {
  const auto ours = add_nonblocking(1, "ours");
  ours->may_leave = false;
  EXPECT_EQ(life_.finalize(handle(1)), ncclInProgress);
  wait_until_happened("farewell ours");
  EXPECT_EQ(state_of(handle(1)), ncclInProgress);
  EXPECT_EQ(life_.destroy(handle(1)), ncclInvalidArgument);
  ours->let_leave();
  while (state_of(handle(1)) == ncclInProgress) std::this_thread::yield();
  EXPECT_EQ(state_of(handle(1)), ncclSuccess);
  taken();
  EXPECT_EQ(life_.destroy(handle(1)), ncclSuccess);
  wait_until_happened("destroyed ours");
}

TEST_F(NonBlockingTest, DestroyLeavesTheRestToTheBackground) {
  auto ours = add_nonblocking(1, "ours");
  ours->may_leave = false;
  EXPECT_EQ(life_.destroy(handle(1)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("unbind 1", "Destroy 1"));
  add(1, "next", 0);  // the handle is free for another
  ours->let_leave();
  wait_until_happened("destroyed ours");
  EXPECT_NE(manager_.find(handle(1)), nullptr);
}

TEST_F(NonBlockingTest, AbortEndsABackgroundFarewell) {
  auto ours = add_nonblocking(1, "ours");
  ours->may_leave = false;
  EXPECT_EQ(life_.finalize(handle(1)), ncclInProgress);
  wait_until_happened("farewell ours");
  taken();
  EXPECT_EQ(life_.abort(handle(1)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("unbind 1", "stopped ours", "Abort 1"));
  ours->let_leave();
  ours.reset();
  wait_until_happened("freed ours");
}

TEST_F(NonBlockingTest, WhatNcclIsBusyWithIsNotLeft) {
  add_nonblocking(1, "ours");
  nccl_.states[handle(1)] = ncclInProgress;
  EXPECT_EQ(life_.finalize(handle(1)), ncclInvalidArgument);
  EXPECT_EQ(life_.destroy(handle(1)), ncclInvalidArgument);
  EXPECT_THAT(taken(), IsEmpty());
  EXPECT_NE(manager_.find(handle(1)), nullptr);
}

TEST(Blocking, FollowsConfigAndEnvironment) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_TRUE(blocking_by_config(nullptr, true));
  EXPECT_FALSE(blocking_by_config(nullptr, false));
  EXPECT_TRUE(blocking_by_config(&config, false)) << "undefined means NCCL's default";
  config.blocking = 0;
  EXPECT_FALSE(blocking_by_config(&config, true));
  config.size = offsetof(ncclConfig_t, blocking);  // of a release that did not have it
  EXPECT_TRUE(blocking_by_config(&config, true));
  const auto environment = [](const char* value) {
    return blocking_by_environment(NcclEnv::load({{"NCCL_COMM_BLOCKING", value}}, {}));
  };
  EXPECT_EQ(environment("0"), false);
  EXPECT_EQ(environment("1"), true);
  EXPECT_EQ(environment("2"), std::nullopt);
  EXPECT_EQ(blocking_by_environment(NcclEnv::load({}, {})), std::nullopt);
}

}  // namespace
}  // namespace railyard::intercept
