// SPDX-License-Identifier: Apache-2.0
//
// What a group does with messages: who carries them, when they start, and what failures cancel.
#include <limits>

#include "intercept_fakes.h"

namespace railyard::intercept {
namespace {

class GroupTest : public InterceptTest {
 protected:
  ncclResult_t send(int peer, size_t count, int comm = 1, int on = 7) {
    return group_.send(memory_, count, ncclFloat, peer, handle(comm), stream(on));
  }
  ncclResult_t recv(int peer, size_t count, int comm = 1, int on = 7) {
    return group_.recv(memory_, count, ncclFloat, peer, handle(comm), stream(on));
  }
};

TEST_F(GroupTest, MessageAloneStartsAtOnceAndNeverReachesNccl) {
  add(1, "ours", 0);
  EXPECT_EQ(send(2, 3), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("launch ours"));
  ASSERT_EQ(engines_.launches.size(), 1U);
  const Launch& launch = engines_.launches[0];
  ASSERT_EQ(launch.exchange.sends.size(), 1U);
  EXPECT_TRUE(launch.exchange.recvs.empty());
  EXPECT_EQ(launch.exchange.sends[0].peer, 2);
  EXPECT_EQ(launch.exchange.sends[0].bytes, 12U);
  EXPECT_EQ(launch.exchange.sends[0].buffer, memory_);
  EXPECT_THAT(launch.streams, ElementsAre(stream(7)));
}

TEST_F(GroupTest, GroupStartsAllAtTheOutermostEndAfterNccl) {
  add(1, "ours", 0);
  group_.start();
  send(2, 1);
  group_.start();
  recv(2, 2);
  recv(0, 0);  // zero counts are messages, too
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_TRUE(engines_.launches.empty());
  send(2, 4);
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_THAT(taken(),
              ElementsAre("GroupStart", "GroupStart", "GroupEnd", "GroupEnd", "launch ours"));
  ASSERT_EQ(engines_.launches.size(), 1U);
  const exchange::Exchange& exchange = engines_.launches[0].exchange;
  ASSERT_EQ(exchange.sends.size(), 2U);
  EXPECT_EQ(exchange.sends[0].bytes, 4U);
  EXPECT_EQ(exchange.sends[1].bytes, 16U);
  ASSERT_EQ(exchange.recvs.size(), 2U);
  EXPECT_EQ(exchange.recvs[1].bytes, 0U);
}

TEST_F(GroupTest, NothingLingersForTheNextGroup) {
  add(1, "ours", 0);
  for (int round = 0; round < 2; ++round) {
    group_.start();
    send(2, 1);
    EXPECT_EQ(group_.end(), ncclSuccess);
  }
  ASSERT_EQ(engines_.launches.size(), 2U);
  EXPECT_EQ(engines_.launches[1].exchange.sends.size(), 1U);
  group_.start();
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_EQ(engines_.launches.size(), 2U);
}

TEST_F(GroupTest, LaunchesOnTheStreamLastSeenFirst) {
  add(1, "ours", 0);
  group_.start();
  for (const int on : {5, 0, 5, 2, 0}) send(2, 1, 1, on);
  group_.end();
  ASSERT_EQ(engines_.launches.size(), 1U);
  EXPECT_THAT(engines_.launches[0].streams, ElementsAre(stream(2), stream(0), stream(5)));
}

TEST_F(GroupTest, SeveralCommunicatorsStartInTheirCommonOrder) {
  add(1, "late", 20);
  add(2, "early", 10);
  group_.start();
  send(2, 1, 1);
  send(2, 1, 2);
  recv(2, 1, 1);
  group_.end();
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "GroupEnd", "launch early", "launch late"));
  EXPECT_EQ(engines_.launches[1].exchange.recvs.size(), 1U);
}

TEST_F(GroupTest, OtherCommunicatorsStayWithNccl) {
  add(2, "joined only", 0, false);
  group_.start();
  EXPECT_EQ(send(2, 1, 1), ncclSuccess);
  EXPECT_EQ(recv(2, 1, 2), ncclSuccess);
  EXPECT_EQ(group_.all_to_all(memory_, memory_, 1, ncclInt, handle(1), stream(1)), ncclSuccess);
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "Send 1", "Recv 2", "AlltoAll 1", "GroupEnd"));
}

TEST_F(GroupTest, CallsThatNcclRefusesGoToNcclAndCancelTheGroup) {
  add(1, "ours", 0);
  EXPECT_EQ(send(4, 1), ncclInvalidArgument);
  EXPECT_EQ(send(-1, 1), ncclInvalidArgument);
  EXPECT_EQ(group_.recv(memory_, 1, ncclNumTypes, 2, handle(1), nullptr), ncclInvalidArgument);
  EXPECT_EQ(group_.send(memory_, 1, ncclInt, 2, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(group_.end(), ncclInvalidUsage);
  EXPECT_THAT(taken(), ElementsAre("Send 1", "Send 1", "Recv 1", "Send null", "GroupEnd"));

  group_.start();
  send(2, 1);
  EXPECT_EQ(recv(4, 1), ncclInvalidArgument);
  EXPECT_EQ(group_.end(), ncclInvalidArgument);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "Recv 1", "GroupEnd"));
  EXPECT_EQ(send(2, 1), ncclSuccess);  // the next call is not to blame
}

TEST_F(GroupTest, FailureInNcclsPartStartsNothing) {
  add(1, "ours", 0);
  nccl_.end_result = ncclUnhandledCudaError;
  group_.start();
  send(2, 1);
  EXPECT_EQ(group_.end(), ncclUnhandledCudaError);
  EXPECT_TRUE(engines_.launches.empty());
}

TEST_F(GroupTest, OversizeIsRefusedAndCancelsNcclsPart) {
  add(1, "ours", 0);
  constexpr size_t kHuge = std::numeric_limits<size_t>::max() / 2;
  EXPECT_EQ(send(2, kHuge), ncclInvalidArgument);
  EXPECT_EQ(group_.all_to_all(memory_, memory_, kHuge / 4, ncclInt, handle(1), stream(1)),
            ncclInvalidArgument);
  EXPECT_THAT(taken(), IsEmpty());
  group_.start();
  send(2, 1);
  EXPECT_EQ(send(2, kHuge), ncclInvalidArgument);
  EXPECT_EQ(group_.end(), ncclInvalidArgument);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "Send null", "GroupEnd"));
  EXPECT_THAT(runtime_.last_error.text(nullptr), HasSubstr("elements"));
}

TEST_F(GroupTest, MessagesToOneselfMustPair) {
  add(1, "ours", 0);
  EXPECT_EQ(send(1, 1), ncclInvalidUsage);
  group_.start();
  send(1, 1);
  recv(1, 2);
  EXPECT_EQ(group_.end(), ncclInvalidUsage);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "Send null", "GroupEnd"));
  EXPECT_THAT(runtime_.last_error.text(nullptr), HasSubstr("sends 4 bytes to itself"));
  group_.start();
  send(1, 1);
  send(1, 2);
  recv(1, 1);
  recv(1, 2);
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_EQ(engines_.launches.size(), 1U);
}

TEST_F(GroupTest, SimulatedGroupStartsNothing) {
  add(1, "ours", 0);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  group_.start();
  send(2, 1);
  EXPECT_EQ(group_.simulate_end(&info), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "GroupSimulateEnd"));
  group_.start();
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_TRUE(engines_.launches.empty());
}

TEST_F(GroupTest, WhatNcclDoesNotSimulateIsDone) {
  const auto ours = add(1, "ours", 0);
  group_.start();
  send(2, 1);
  EXPECT_EQ(group_.simulate_end(nullptr), ncclSuccess);
  EXPECT_EQ(engines_.launches.size(), 1U);
  ours->standing.blocking = false;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  group_.start();
  send(2, 1);
  EXPECT_EQ(group_.simulate_end(&info), ncclSuccess);
  EXPECT_EQ(engines_.launches.size(), 2U);
}

TEST_F(GroupTest, SimulationMissingFromTheLibraryLeavesTheGroupOpen) {
  library_.ncclGroupSimulateEnd = nullptr;
  add(1, "ours", 0);
  group_.start();
  send(2, 1);
  EXPECT_EQ(group_.simulate_end(nullptr), ncclInvalidUsage);
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_EQ(engines_.launches.size(), 1U);
}

TEST_F(GroupTest, AllToAllIsAMessageEachWayPerRank) {
  add(1, "ours", 0);
  std::byte result[64] = {};
  EXPECT_EQ(group_.all_to_all(memory_, result, 2, ncclHalf, handle(1), stream(3)), ncclSuccess);
  ASSERT_EQ(engines_.launches.size(), 1U);
  const exchange::Exchange& exchange = engines_.launches[0].exchange;
  ASSERT_EQ(exchange.sends.size(), 4U);
  ASSERT_EQ(exchange.recvs.size(), 4U);
  for (int peer = 0; peer < 4; ++peer) {
    const auto at = static_cast<size_t>(peer);
    EXPECT_EQ(exchange.sends[at].peer, peer);
    EXPECT_EQ(exchange.sends[at].buffer, memory_ + 4 * at);
    EXPECT_EQ(exchange.recvs[at].buffer, result + 4 * at);
    EXPECT_EQ(exchange.recvs[at].bytes, 4U);
  }
  // Without elements it is dropped, as NCCL does.
  EXPECT_EQ(group_.all_to_all(memory_, result, 0, ncclHalf, handle(1), stream(3)), ncclSuccess);
  EXPECT_EQ(engines_.launches.size(), 1U);
}

TEST_F(GroupTest, AllToAllMissingFromTheLibrary) {
  library_.ncclAlltoAll = nullptr;
  EXPECT_EQ(group_.all_to_all(memory_, memory_, 1, ncclInt, handle(2), stream(3)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "Send 2", "Recv 2", "Send 2", "Recv 2", "Send 2",
                                   "Recv 2", "Send 2", "Recv 2", "GroupEnd"));
  add(1, "ours", 0);
  EXPECT_EQ(group_.all_to_all(memory_, memory_, 1, ncclInt, handle(1), stream(3)), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("launch ours"));
}

TEST_F(GroupTest, BrokenCommunicatorRefusesMessages) {
  const auto ours = add(1, "ours", 0);
  ours->error = Status(Code::kRemoteError, "rank 3 on node b is gone");
  EXPECT_EQ(send(2, 1), ncclRemoteError);
  group_.start();
  EXPECT_EQ(recv(2, 1), ncclRemoteError);
  EXPECT_EQ(group_.end(), ncclRemoteError);
  EXPECT_TRUE(engines_.launches.empty());
  EXPECT_THAT(runtime_.last_error.text(nullptr), HasSubstr("rank 3 on node b"));
}

TEST_F(GroupTest, LaunchFailureComesBackAndOthersStillStart) {
  const auto first = add(1, "first", 1);
  add(2, "second", 2);
  first->launch_result = Status(Code::kDeviceError, "cuLaunchKernel: out of memory");
  group_.start();
  send(2, 1, 1);
  send(2, 1, 2);
  EXPECT_EQ(group_.end(), ncclUnhandledCudaError);
  EXPECT_EQ(engines_.launches.size(), 2U);
}

TEST_F(GroupTest, StreamsOfDifferentCapturesCannotShareAGroup) {
  const auto ours = add(1, "ours", 0);
  ours->streams_result = Status(Code::kInvalidUsage, "not all captured into the same graph");
  EXPECT_EQ(send(2, 1, 1, 1), ncclSuccess);  // one stream may be anything
  group_.start();
  EXPECT_EQ(send(2, 1, 1, 1), ncclSuccess);
  EXPECT_EQ(send(2, 1, 1, 1), ncclSuccess);
  EXPECT_EQ(send(2, 1, 1, 2), ncclInvalidUsage);
  EXPECT_EQ(group_.end(), ncclInvalidUsage);
  EXPECT_EQ(engines_.launches.size(), 1U);
}

TEST_F(GroupTest, GatherAndScatterAreMessages) {
  add(1, "ours", 0);  // rank 1 of 4
  std::byte result[64] = {};
  const auto gather = [&](size_t count, int root) {
    return group_.gather(memory_, result, count, ncclHalf, root, handle(1), stream(3));
  };
  const auto scatter = [&](size_t count, int root) {
    return group_.scatter(memory_, result, count, ncclHalf, root, handle(1), stream(3));
  };
  for (const int root : {1, 2}) {
    EXPECT_EQ(gather(2, root), ncclSuccess);
    EXPECT_EQ(scatter(2, root), ncclSuccess);
  }
  ASSERT_EQ(engines_.launches.size(), 4U);
  const auto sends = [&](size_t i) { return engines_.launches[i].exchange.sends; };
  const auto recvs = [&](size_t i) { return engines_.launches[i].exchange.recvs; };
  EXPECT_THAT(std::vector({sends(0).size(), recvs(0).size(), sends(1).size(), recvs(1).size()}),
              ElementsAre(1U, 4U, 4U, 1U));
  EXPECT_THAT(std::vector({sends(2).size(), recvs(2).size(), sends(3).size(), recvs(3).size()}),
              ElementsAre(1U, 0U, 0U, 1U));
  EXPECT_EQ(recvs(0)[3].buffer, result + 12);
  EXPECT_EQ(sends(1)[2].buffer, memory_ + 8);
  EXPECT_EQ(sends(2)[0].peer, 2);
  EXPECT_EQ(recvs(3)[0].bytes, 4U);
  taken();
  EXPECT_EQ(gather(0, 0), ncclSuccess);
  EXPECT_EQ(scatter(0, 0), ncclSuccess);
  EXPECT_THAT(taken(), IsEmpty());
  EXPECT_EQ(gather(0, 4), ncclInvalidArgument);
  EXPECT_EQ(scatter(1, -1), ncclInvalidArgument);
  EXPECT_THAT(taken(), ElementsAre("Gather 1", "Scatter 1"));
  library_.ncclGather = nullptr;
  EXPECT_EQ(gather(1, 0), ncclInvalidUsage);
}

TEST_F(GroupTest, CollectivesOfNcclKeepTheirPlaceAmongExchanges) {
  add(1, "ours", 0);
  const auto reduce = [&](int comm, int on) {
    return group_.all_reduce(memory_, memory_, 1, ncclInt, ncclSum, handle(comm), stream(on));
  };
  EXPECT_EQ(reduce(1, 3), ncclSuccess);
  EXPECT_EQ(reduce(2, 3), ncclSuccess);
  EXPECT_THAT(taken(),
              ElementsAre("before ours on 3", "AllReduce 1", "after ours on 3", "AllReduce 2"));
  group_.start();
  EXPECT_EQ(send(2, 1, 1, 4), ncclSuccess);
  EXPECT_EQ(reduce(1, 3), ncclSuccess);
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "AllReduce 1", "before ours on 3 4", "GroupEnd",
                                   "launch ours"));
  EXPECT_THAT(engines_.launches[0].streams, ElementsAre(stream(4), stream(3)));
  group_.start();
  EXPECT_EQ(reduce(1, 3), ncclSuccess);
  EXPECT_EQ(reduce(1, 4), ncclSuccess);
  EXPECT_EQ(group_.end(), ncclSuccess);
  EXPECT_THAT(taken(), ElementsAre("GroupStart", "AllReduce 1", "AllReduce 1", "before ours on 4 3",
                                   "GroupEnd", "after ours on 4 3"));
  EXPECT_EQ(group_.all_reduce(memory_, memory_, 1, ncclNumTypes, ncclSum, handle(1), nullptr),
            ncclInvalidArgument);
  EXPECT_THAT(taken(), ElementsAre("before ours on 0", "AllReduce 1"));
}

TEST_F(GroupTest, TheLastErrorOfAGroupComesBack) {
  add(1, "ours", 0);
  constexpr size_t kHuge = std::numeric_limits<size_t>::max() / 2;
  group_.start();
  EXPECT_EQ(send(2, kHuge), ncclInvalidArgument);
  nccl_.latch(ncclInvalidUsage);  // of a call that never comes here
  EXPECT_EQ(group_.end(), ncclInvalidUsage);
  group_.start();
  send(1, 1);  // to itself, without a receive: found at the end, which an earlier error spares
  EXPECT_EQ(recv(9, 1), ncclInvalidArgument);
  EXPECT_EQ(group_.end(), ncclInvalidArgument);
}

TEST_F(GroupTest, MessagesOfAMixedGroupFollowNcclsPartWhicheverIsAsked) {
  add(1, "blocking", 1);
  add(2, "other", 2)->standing.blocking = false;
  for (const int asked : {1, 2, 3}) {  // the last one has calls of NCCL's only
    nccl_.end_result = ncclInProgress;
    nccl_.states[handle(2)] = ncclInProgress;
    group_.start();
    send(2, 1, 1);
    send(2, 1, 2);
    send(2, 1, 3);
    EXPECT_EQ(group_.end(), ncclInProgress);
    EXPECT_THAT(taken(), ElementsAre("GroupStart", "Send 3", "GroupEnd"));
    ncclResult_t state = ncclSuccess;
    life_.get_async_error(handle(asked), &state);
    EXPECT_EQ(state, ncclInProgress);
    EXPECT_THAT(taken(), IsEmpty());
    nccl_.states[handle(2)] = ncclSuccess;
    life_.get_async_error(handle(asked), &state);
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_THAT(taken(), ElementsAre("launch blocking", "launch other"));
  }
}

TEST_F(GroupTest, MessagesOfANonBlockingGroupFollowNcclsPart) {
  add(1, "late", 2)->standing.blocking = false;
  add(2, "early", 1)->standing.blocking = false;
  nccl_.end_result = ncclInProgress;
  nccl_.states[handle(1)] = nccl_.states[handle(2)] = ncclInProgress;
  group_.start();
  send(2, 1, 1);
  send(2, 1, 2);
  EXPECT_EQ(group_.end(), ncclInProgress);
  EXPECT_TRUE(engines_.launches.empty());
  EXPECT_EQ(send(2, 1, 1), ncclInvalidArgument);  // as NCCL: still in progress

  ncclResult_t state = ncclSuccess;
  nccl_.states[handle(1)] = ncclSuccess;
  life_.get_async_error(handle(1), &state);
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_TRUE(engines_.launches.empty());
  nccl_.states[handle(2)] = ncclSuccess;
  life_.get_async_error(handle(1), &state);
  EXPECT_EQ(state, ncclSuccess);
  ASSERT_EQ(engines_.launches.size(), 2U);
  EXPECT_EQ(engines_.launches[0].label, "early");
  EXPECT_EQ(send(2, 1, 1), ncclSuccess);
}

TEST_F(GroupTest, MemoryThatNcclRefusesIsLeftToItWhereItLooks) {
  add(1, "ours", 0);
  engines_.foreign = memory_;
  EXPECT_EQ(send(2, 1), ncclSuccess);  // it does not look
  EXPECT_THAT(taken(), ElementsAre("launch ours"));
  runtime_.check_pointers = true;
  send(2, 1);
  recv(2, 1);
  EXPECT_EQ(send(2, 0), ncclSuccess);
  group_.all_to_all(memory_ + 1, memory_, 1, ncclInt8, handle(1), nullptr);
  group_.gather(memory_, memory_ + 1, 1, ncclInt8, 0, handle(1), nullptr);
  group_.scatter(memory_, memory_ + 1, 0, ncclInt8, 0, handle(1), nullptr);
  EXPECT_THAT(taken(), ElementsAre("Send 1", "Recv 1", "launch ours", "AlltoAll 1", "Gather 1",
                                   "Scatter 1"));
  group_.all_to_all(memory_ + 1, memory_ + 1, 1, ncclInt8, handle(1), nullptr);
  EXPECT_THAT(taken(), ElementsAre("launch ours"));
}

}  // namespace
}  // namespace railyard::intercept
