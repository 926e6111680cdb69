// SPDX-License-Identifier: Apache-2.0
//
// Creation and end of communicators: the order of NCCL's part and ours, and what failures leave.
#include "intercept_fakes.h"

namespace railyard::intercept {
namespace {

class LifeTest : public InterceptTest {
 protected:
  /// What the next join is going to yield.
  std::shared_ptr<FakeJoining> joins(std::string label, uint64_t order = 0) {
    auto joining = std::make_shared<FakeJoining>();
    joining->communicator = std::make_shared<FakeCommunicator>(std::move(label), order);
    manager_.next = joining;
    return joining;
  }
  ncclResult_t init(ncclComm_t* comm) { return life_.init_rank(comm, 4, ncclUniqueId{}, 1); }
  ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = ncclNumResults;
    EXPECT_EQ(life_.get_async_error(comm, &state), ncclSuccess);
    return state;
  }

  ncclComm_t comm_ = nullptr;
};

TEST_F(LifeTest, UniqueIdIsMarked) {
  ncclUniqueId id;
  EXPECT_EQ(life_.get_unique_id(&id), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GetUniqueId", "mark"));
}

TEST_F(LifeTest, CreationJoinsBeforeNcclAndWaitsAfterIt) {
  joins("ours");
  EXPECT_EQ(init(&comm_), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join", "create", "joined", "bind 1"));
  EXPECT_EQ(state_of(comm_), ncclSuccess);
}

TEST_F(LifeTest, UnmarkedIdStaysWithNccl) {
  EXPECT_EQ(life_.init_rank_config(&comm_, 4, ncclUniqueId{}, 1, nullptr), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join", "create"));
  joins("ours")->communicator = nullptr;  // a join that ends with: leave it to NCCL
  taken();
  EXPECT_EQ(init(&comm_), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join", "create", "joined"));
}

TEST_F(LifeTest, RankOutOfRangeIsForNcclToRefuse) {
  joins("ours");
  life_.init_rank(&comm_, 4, ncclUniqueId{}, 4);
  EXPECT_THAT(taken(), ElementsAre("create"));
}

TEST_F(LifeTest, GroupedCreationsWaitTogetherAtTheOutermostEnd) {
  ncclComm_t other = nullptr;
  group_.start();
  group_.start();
  joins("a");
  EXPECT_EQ(init(&comm_), ncclSuccess);
  EXPECT_EQ(group_.end(), ncclSuccess);
  joins("b");
  EXPECT_EQ(init(&other), ncclSuccess);
  taken();
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GroupEnd", "joined", "bind 1", "joined", "bind 2"));
}

TEST_F(LifeTest, CreationsComeBeforeMessagesOfTheSameGroup) {
  add(5, "old", 0);
  group_.start();
  joins("new");
  init(&comm_);
  group_.send(memory_, 1, ncclInt, 2, handle(5), stream(1));
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "join", "create", "GroupEnd", "joined", "bind 1",
                                   "launch old"));
}

TEST_F(LifeTest, FailedCreationIsGivenUpWithoutWaiting) {
  auto first = joins("first");
  first->finished = false;
  nccl_.create_result = ncclSystemError;
  EXPECT_EQ(init(&comm_), ncclSystemError);
  EXPECT_THAT(taken(), ElementsAre("join", "create"));
  first->finished = true;
  first.reset();
  const auto second = joins("second");
  second->finished = false;
  group_.start();
  EXPECT_EQ(init(&comm_), ncclSystemError);  // what the first left behind goes now
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "join", "create", "freed first"));
  EXPECT_EQ(group_.end(), ncclSystemError);
}

TEST_F(LifeTest, FailedGroupGivesItsCreationsUp) {
  joins("ours");
  group_.start();
  EXPECT_EQ(init(&comm_), ncclSuccess);
  nccl_.end_result = ncclRemoteError;
  taken();
  EXPECT_EQ(group_.end(), ncclRemoteError);
  EXPECT_THAT(taken(), ElementsAre("GroupEnd", "freed ours"));
  EXPECT_EQ(manager_.find(comm_), nullptr);
}

TEST_F(LifeTest, NonBlockingCreationIsInProgressUntilBothAreDone) {
  const auto joining = joins("ours");
  joining->finished = false;
  nccl_.create_result = ncclInProgress;
  EXPECT_EQ(init(&comm_), ncclInProgress);
  nccl_.states[comm_] = ncclInProgress;
  EXPECT_EQ(state_of(comm_), ncclInProgress);
  joining->finished = true;
  EXPECT_EQ(state_of(comm_), ncclInProgress);
  joining->finished = false;
  nccl_.states[comm_] = ncclSuccess;
  EXPECT_EQ(state_of(comm_), ncclInProgress);
  joining->finished = true;
  taken();
  EXPECT_EQ(state_of(comm_), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("joined", "bind 1"));
  EXPECT_EQ(state_of(comm_), ncclSuccess);
  EXPECT_THAT(taken(), IsEmpty());
}

TEST_F(LifeTest, NonBlockingCreationThatFailsIsGivenUp) {
  joins("ours");
  nccl_.create_result = ncclInProgress;
  init(&comm_);
  nccl_.states[comm_] = ncclRemoteError;
  taken();
  EXPECT_EQ(state_of(comm_), ncclRemoteError);
  EXPECT_THAT(taken(), ElementsAre("freed ours"));
}

TEST_F(LifeTest, SplitBindsTheChild) {
  joins("child");
  EXPECT_EQ(life_.split(handle(9), 1, 0, &comm_, nullptr), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join split of 9", "create", "joined", "bind 1"));
  joins("nobody");
  EXPECT_EQ(life_.split(handle(9), NCCL_SPLIT_NOCOLOR, 0, &comm_, nullptr), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join split of 9", "create none", "joined", "freed nobody"));
}

TEST_F(LifeTest, NonBlockingSplitIsReportedByTheParent) {
  joins("child");
  nccl_.create_result = ncclInProgress;
  EXPECT_EQ(life_.split(handle(9), 1, 0, &comm_, nullptr), ncclInProgress);
  nccl_.states[handle(9)] = ncclInProgress;
  EXPECT_EQ(state_of(handle(9)), ncclInProgress);
  nccl_.states[handle(9)] = ncclSuccess;
  taken();
  EXPECT_EQ(state_of(handle(9)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("joined", "bind 1"));
}

TEST_F(LifeTest, AsyncErrorIsNcclsOrOurs) {
  const auto ours = add(1, "ours", 0);
  EXPECT_EQ(state_of(handle(1)), ncclSuccess);
  for (const auto& [code, result] : {std::pair{Code::kRemoteError, ncclRemoteError},
                                     {Code::kSystemError, ncclSystemError},
                                     {Code::kDeviceError, ncclUnhandledCudaError},
                                     {Code::kAborted, ncclInternalError},
                                     {Code::kInvalidUsage, ncclInvalidUsage},
                                     {Code::kInvalidArgument, ncclInvalidArgument}}) {
    ours->error = Status(code, "something");
    EXPECT_EQ(state_of(handle(1)), result);
  }
  nccl_.states[handle(1)] = ncclInternalError;
  EXPECT_EQ(state_of(handle(1)), ncclInternalError);
}

TEST_F(LifeTest, DestroySaysFarewellBeforeNccl) {
  add(1, "ours", 0);
  EXPECT_EQ(life_.finalize(handle(1)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("farewell ours", "Finalize 1"));
  EXPECT_EQ(life_.destroy(handle(1)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("destroyed ours", "unbind 1", "Destroy 1"));
  life_.destroy(handle(1));
  life_.destroy(nullptr);
  EXPECT_THAT(taken(), ElementsAre("Destroy 1", "Destroy null"));
}

TEST_F(LifeTest, GroupedDestroysSayFarewellInTheirCommonOrder) {
  add(1, "late", 2);
  add(2, "early", 1);
  group_.start();
  life_.destroy(handle(1));
  life_.destroy(handle(2));
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "Destroy 1", "Destroy 2", "destroyed early",
                                   "unbind 2", "destroyed late", "unbind 1", "GroupEnd"));
}

TEST_F(LifeTest, AbortReleasesKernelsFirstAndFreesLast) {
  add(1, "ours", 0);
  EXPECT_EQ(life_.abort(handle(1)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("unbind 1", "stopped ours", "Abort 1", "freed ours"));
  EXPECT_EQ(life_.abort(nullptr), ncclSuccess);
}

TEST_F(LifeTest, RevokedCommunicatorGoesBackToNccl) {
  add(9, "ours", 0);
  EXPECT_EQ(life_.revoke(handle(9), 5), ncclInvalidArgument);
  EXPECT_THAT(taken(), ElementsAre("Revoke 9"));
  EXPECT_EQ(life_.revoke(handle(9), 0), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("stopped ours", "Revoke 9"));
  group_.send(memory_, 1, ncclInt, 2, handle(9), nullptr);
  life_.revoke(handle(9), 0);
  life_.finalize(handle(9));
  EXPECT_THAT(taken(), ElementsAre("Send 9", "Revoke 9", "Finalize 9")) << "NCCL's to refuse";
  EXPECT_EQ(state_of(handle(9)), ncclSuccess);
  // It can have children, and ends without a farewell.
  joins("child");
  EXPECT_EQ(life_.split(handle(9), 0, 0, &comm_, nullptr), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join split of 9", "create", "joined", "bind 1"));
  EXPECT_EQ(life_.destroy(handle(9)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("unbind 9", "Destroy 9", "freed ours"));
}

TEST_F(LifeTest, FinalizedAndSuspendedCommunicatorsTakeNoMessages) {
  add(9, "ours", 0);
  EXPECT_EQ(life_.suspend(handle(9), 1), ncclSuccess);
  group_.send(memory_, 1, ncclInt, 2, handle(9), nullptr);
  EXPECT_EQ(life_.resume(handle(9)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("Suspend 9", "Send 9", "Resume 9"));
  group_.send(memory_, 1, ncclInt, 2, handle(9), nullptr);
  EXPECT_EQ(life_.finalize(handle(9)), ncclSuccess);
  group_.send(memory_, 1, ncclInt, 2, handle(9), nullptr);
  life_.finalize(handle(9));
  EXPECT_THAT(taken(),
              ElementsAre("launch ours", "farewell ours", "Finalize 9", "Send 9", "Finalize 9"));
}

TEST_F(LifeTest, CreationFromSeveralIds) {
  ncclUniqueId ids[3] = {};
  joins("ours");
  EXPECT_EQ(life_.init_rank_scalable(&comm_, 4, 1, 3, ids, nullptr), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join by 3 ids", "create", "joined", "bind 1"));
  life_.init_rank_scalable(&comm_, 4, 1, 0, ids, nullptr);
  life_.init_rank_scalable(&comm_, 4, 1, 3, nullptr, nullptr);
  EXPECT_EQ(life_.init_all(&comm_, 1, nullptr), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("create", "create", "create")) << "NCCL's to refuse, or alone";
}

TEST_F(LifeTest, ShrinkingStopsTheParentOnlyIfAsked) {
  add(9, "parent", 0);
  int excluded[2] = {3, 2};
  joins("child");
  EXPECT_EQ(life_.shrink(handle(9), excluded, 2, &comm_, nullptr, 0), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join 9 without 2", "create", "joined", "bind 1"));
  joins("child");
  EXPECT_EQ(life_.shrink(handle(9), excluded, 1, &comm_, nullptr, 1), ncclSuccess);
  EXPECT_THAT(taken(),
              ElementsAre("join 9 without 1", "stopped parent", "create", "joined", "bind 2"));
  life_.shrink(handle(9), nullptr, 1, &comm_, nullptr, 1);
  life_.shrink(handle(9), excluded, 0, &comm_, nullptr, 1);
  EXPECT_THAT(taken(), ElementsAre("create", "create"));
}

TEST_F(LifeTest, GrowthIsJoinedByOldAndNewRanks) {
  ncclUniqueId id{};
  EXPECT_EQ(life_.comm_get_unique_id(handle(9), &id), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GetUniqueId of 9", "mark growth of 9"));
  joins("old rank");
  EXPECT_EQ(life_.grow(handle(9), 5, nullptr, -1, &comm_, nullptr), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join 9 grown to 5", "create", "joined", "bind 1"));
  joins("new rank");
  EXPECT_EQ(life_.grow(nullptr, 5, &id, 4, &comm_, nullptr), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("join", "create", "joined", "bind 2"));
  life_.grow(handle(9), 5, nullptr, 0, &comm_, nullptr);
  life_.grow(nullptr, 5, nullptr, 4, &comm_, nullptr);
  EXPECT_THAT(taken(), ElementsAre("create", "create"));
}

TEST_F(LifeTest, StrangersAreAdoptedWhenTheyHaveChildren) {
  strangers_.note(77, 4);
  strangers_.note(77, 4);  // another rank of this process
  strangers_.note(78, 8);
  life_.split(handle(9), 0, 0, &comm_, nullptr);
  EXPECT_THAT(taken(), ElementsAre("adopt 9 of 4 ranks, hash 77", "join split of 9", "create"));
  strangers_.note(79, 4);  // a creation that was seen
  life_.split(handle(9), 0, 0, &comm_, nullptr);
  EXPECT_THAT(taken(), ElementsAre("adopt 9 of 4 ranks, hash 77", "join split of 9", "create"));
  add(8, "known", 0);
  life_.split(handle(8), 0, 0, &comm_, nullptr);
  life_.destroy(handle(9));
  life_.split(handle(9), 0, 0, &comm_, nullptr);
  EXPECT_THAT(taken(),
              ElementsAre("join split of 8", "create", "Destroy 9", "join split of 9", "create"));
}

TEST_F(LifeTest, StrangersThatCannotBeToldApartStay) {
  strangers_.note(77, 4);
  strangers_.note(78, 4);
  life_.split(handle(9), 0, 0, &comm_, nullptr);
  EXPECT_THAT(taken(), ElementsAre("join split of 9", "create"));
}

TEST_F(LifeTest, FunctionsMissingFromTheLibrary) {
  library_.ncclCommRevoke = nullptr;
  library_.ncclCommSplit = nullptr;
  add(1, "ours", 0);
  EXPECT_EQ(life_.revoke(handle(1), 0), ncclInvalidUsage);
  EXPECT_EQ(life_.split(handle(1), 0, 0, &comm_, nullptr), ncclInvalidUsage);
  EXPECT_NE(manager_.find(handle(1)), nullptr);
}

TEST_F(LifeTest, LastErrorIsTheNewerOfNcclsAndOurs) {
  nccl_.last_error = "old trouble";
  EXPECT_STREQ(runtime_.last_error.text(nullptr), "old trouble");
  runtime_.last_error.set(Status(Code::kSystemError, "ours"));
  EXPECT_STREQ(runtime_.last_error.text(nullptr), "railyard: ours");
  nccl_.last_error = "new trouble";
  EXPECT_STREQ(runtime_.last_error.text(nullptr), "new trouble");
}

}  // namespace
}  // namespace railyard::intercept
