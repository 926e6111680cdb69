// SPDX-License-Identifier: Apache-2.0
//
// Peers that leave, messages that do not match, and aborts of what waits.
#include <future>
#include <latch>
#include <string>
#include <thread>

#include "world.h"

namespace railyard::emulator {
namespace {

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclNumResults;
  EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
  return state;
}

/// World::run destroys the communicators that are left.
void abort_comm(Rank& rank) { EXPECT_NCCL(ncclCommAbort(std::exchange(rank.comm, nullptr))); }

// Ranks 0 and 1 share a node, rank 2 is elsewhere.
class PeerOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Failure, PeerOf, testing::Values(1, 2));

TEST_P(PeerOf, AbortFreesWaitingWork) {
  std::latch aborted(1);
  World(3).run([&](Rank& rank) {
    Buffer<int> data(1);
    if (rank.rank != 0) return aborted.wait();
    ASSERT_NCCL(ncclRecv(data.data(), 1, ncclInt32, GetParam(), rank.comm, rank.stream));
    std::thread watchdog([&] { abort_comm(rank); });
    rank.synchronize();
    watchdog.join();
    aborted.count_down();
  });
}

TEST_P(PeerOf, AbortFreesSendThatNobodyReceives) {
  std::latch aborted(1);
  World(3).run([&](Rank& rank) {
    if (rank.rank != 0) return aborted.wait();
    constexpr size_t kBytes = 64 << 20;
    Buffer<char> data(kBytes);
    ASSERT_NCCL(ncclSend(data.data(), kBytes, ncclInt8, GetParam(), rank.comm, rank.stream));
    std::thread watchdog([&] { abort_comm(rank); });
    rank.synchronize();
    watchdog.join();
    aborted.count_down();
  });
}

TEST_P(PeerOf, LeavingIsSeenByWhoNeedsIt) {
  World(3).run([&](Rank& rank) {
    Buffer<int> data(2);
    if (rank.rank == GetParam()) {
      ASSERT_NCCL(ncclSend(data.data(), 1, ncclInt32, 0, rank.comm, rank.stream));
    } else if (rank.rank == 0) {
      ASSERT_NCCL(ncclRecv(data.data(), 1, ncclInt32, GetParam(), rank.comm, rank.stream));
      rank.synchronize();
      EXPECT_EQ(state_of(rank.comm), ncclSuccess);
      ASSERT_NCCL(ncclRecv(data.data(), 1, ncclInt32, GetParam(), rank.comm, rank.stream));
      rank.synchronize();
      EXPECT_EQ(state_of(rank.comm), ncclRemoteError);
      EXPECT_EQ(ncclRecv(data.data(), 1, ncclInt32, 1, rank.comm, rank.stream), ncclRemoteError);
    }
  });
}

TEST_P(PeerOf, LeavingWithoutAnyMessageIsSeen) {
  World(3).run([&](Rank& rank) {
    Buffer<int> data(1);
    if (rank.rank != 0) return;
    ASSERT_NCCL(ncclRecv(data.data(), 1, ncclInt32, GetParam(), rank.comm, rank.stream));
    rank.synchronize();
    EXPECT_EQ(state_of(rank.comm), ncclRemoteError);
    abort_comm(rank);
  });
}

/// What was sent before leaving arrives, however late it is asked for.
TEST_P(PeerOf, LastMessagesArriveAfterLeaving) {
  constexpr size_t kCount = 100'000;  // fits into the rings
  std::promise<void> left;
  std::future<void> seen = left.get_future();
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  auto create = [&](int number) {
    auto rank = std::make_unique<Rank>(number, 3);
    EXPECT_NCCL(ncclCommInitRank(&rank->comm, 3, id, number));
    return rank;
  };
  std::thread sender([&] {
    auto rank = create(GetParam());
    Buffer<int> data(kCount, 3);
    EXPECT_NCCL(ncclSend(data.data(), kCount, ncclInt32, 0, rank->comm, rank->stream));
    EXPECT_NCCL(ncclCommDestroy(rank->comm));
    left.set_value();
  });
  std::thread idle([&] { EXPECT_NCCL(ncclCommDestroy(create(3 - GetParam())->comm)); });
  auto rank = create(0);
  seen.wait();
  Buffer<int> data(kCount);
  ASSERT_NCCL(ncclRecv(data.data(), kCount, ncclInt32, GetParam(), rank->comm, rank->stream));
  rank->synchronize();
  EXPECT_EQ(std::count(data.begin(), data.end(), 3), kCount);
  EXPECT_EQ(state_of(rank->comm), ncclSuccess);
  EXPECT_NCCL(ncclCommDestroy(rank->comm));
  sender.join();
  idle.join();
}

TEST_P(PeerOf, SizesMustMatch) {
  World(3).run([&](Rank& rank) {
    Buffer<int> data(2);
    if (rank.rank == GetParam()) {
      ASSERT_NCCL(ncclSend(data.data(), 2, ncclInt32, 0, rank.comm, rank.stream));
      rank.synchronize();
    } else if (rank.rank == 0) {
      ASSERT_NCCL(ncclRecv(data.data(), 1, ncclInt32, GetParam(), rank.comm, rank.stream));
      rank.synchronize();
      EXPECT_EQ(state_of(rank.comm), ncclInvalidUsage);
      std::string text = ncclGetLastError(rank.comm);
      EXPECT_NE(text.find("8 bytes where 4"), std::string::npos) << text;
    }
  });
}

TEST(Failure, AbortEndsCollectivesOnAllRanks) {
  std::latch launched(2);
  World(3).run([&](Rank& rank) {
    Buffer<int> data(1);
    if (rank.rank == 2) {
      launched.wait();
      abort_comm(rank);
      return;
    }
    ASSERT_NCCL(
        ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    launched.count_down();
    rank.synchronize();
    EXPECT_EQ(state_of(rank.comm), ncclRemoteError);
  });
}

TEST(Failure, AbortEndsCreationThatWaitsForPeers) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  std::promise<ncclComm_t> begun;
  std::thread creator([&] {
    DeviceThread device(0);
    ncclComm_t comm = nullptr;
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclCommInitRank(&comm, 2, id, 0));
    begun.set_value(comm);
    EXPECT_EQ(ncclGroupEnd(), ncclInternalError);
  });
  EXPECT_NCCL(ncclCommAbort(begun.get_future().get()));
  creator.join();
}

/// Work that has not begun when its communicator is aborted must not touch it later.
TEST(Failure, AbortedWorkIsSkipped) {
  World(2).run([](Rank& rank) {
    std::promise<void> gate;
    std::future<void> open = gate.get_future();
    Buffer<int> data(1, 9);
    ASSERT_CUDA(::cuLaunchHostFunc(
        rank.stream, [](void* f) { static_cast<std::future<void>*>(f)->wait(); }, &open));
    ASSERT_NCCL(
        ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    abort_comm(rank);
    gate.set_value();
    rank.synchronize();
    EXPECT_EQ(data[0], 9);
  });
}

}  // namespace
}  // namespace railyard::emulator
