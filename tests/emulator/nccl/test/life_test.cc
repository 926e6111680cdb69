// SPDX-License-Identifier: Apache-2.0
//
// Children, the ways a communicator ends, configs, non-blocking communicators.
#include <string.h>

#include <array>
#include <barrier>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>

#include "world.h"

namespace railyard::emulator {
namespace {

/// Every rank of `comm` gets the sum of all.
int sum(Rank& rank, ncclComm_t comm, int value) {
  Buffer<int> data(1, value);
  EXPECT_NCCL(ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, comm, rank.stream));
  rank.synchronize();
  return data[0];
}

/// What a non-blocking communicator reports once nothing is in progress.
ncclResult_t outcome(ncclComm_t comm) {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) return asked;
    if (state != ncclInProgress) return state;
    std::this_thread::yield();
  }
}

TEST(Shrink, LeavesOutRanksThatDoNotCall) {
  World(4).run([](Rank& rank) {
    if (rank.rank == 1) return;
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclCommShrink(rank.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
    int place = -1, count = 0;
    ASSERT_NCCL(ncclCommUserRank(child, &place));
    ASSERT_NCCL(ncclCommCount(child, &count));
    EXPECT_EQ(place, rank.rank == 0 ? 0 : rank.rank - 1);
    EXPECT_EQ(count, 3);
    EXPECT_EQ(sum(rank, child, rank.rank), 5);
    ASSERT_NCCL(ncclCommDestroy(child));
  });
}

TEST(Shrink, EndsWhatIsUnderWayIfAsked) {
  std::barrier done(3);  // a rank that has left would be a failure
  World(3).run([&](Rank& rank) {
    if (rank.rank == 2) return done.arrive_and_wait();
    Buffer<int> data(1);
    ASSERT_NCCL(ncclRecv(data.data(), 1, ncclInt32, 2, rank.comm, rank.stream));  // never comes
    int excluded[] = {2};
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclCommShrink(rank.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT));
    EXPECT_EQ(sum(rank, child, 1), 2);
    ASSERT_NCCL(ncclCommDestroy(child));
    done.arrive_and_wait();
  });
}

TEST(Shrink, SortsTheListAndRefusesTheCaller) {
  World(4).run([](Rank& rank) {
    ncclComm_t child = nullptr;
    int list[] = {3, 0};
    if (rank.rank == 0) {
      EXPECT_EQ(ncclCommShrink(rank.comm, list, 2, &child, nullptr, 0), ncclInvalidArgument);
      EXPECT_EQ(list[0], 0);
      EXPECT_EQ(list[1], 3);
    }
    EXPECT_EQ(ncclCommShrink(rank.comm, list, 0, &child, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(rank.comm, nullptr, 1, &child, nullptr, 0), ncclInvalidArgument);
  });
}

TEST(Revoke, EndsWhatIsUnderWayAndRefusesMore) {
  World(2).run([](Rank& rank) {
    Buffer<int> data(1);
    ASSERT_NCCL(ncclRecv(data.data(), 1, ncclInt32, 1 - rank.rank, rank.comm, rank.stream));
    EXPECT_EQ(ncclCommRevoke(rank.comm, 1), ncclInvalidArgument);
    ASSERT_NCCL(ncclCommRevoke(nullptr, 0));
    ASSERT_NCCL(ncclCommRevoke(rank.comm, 0));
    rank.synchronize();
    EXPECT_EQ(ncclSend(data.data(), 1, ncclInt32, 0, rank.comm, rank.stream), ncclInvalidUsage);
    EXPECT_EQ(ncclCommRevoke(rank.comm, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommFinalize(rank.comm), ncclInvalidArgument);
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclCommSplit(rank.comm, 0, 0, &child, nullptr));
    EXPECT_EQ(sum(rank, child, 1), 2);
    ASSERT_NCCL(ncclCommDestroy(child));
  });
}

TEST(Config, IsReadAtItsOwnSize) {
  World(1).run([](Rank& rank) {
    ncclConfig_t longer[2] = {NCCL_CONFIG_INITIALIZER, NCCL_CONFIG_INITIALIZER};
    longer[0].size = sizeof longer;
    ncclConfig_t shorter = NCCL_CONFIG_INITIALIZER;
    shorter.size = offsetof(ncclConfig_t, blocking);
    shorter.blocking = 77;  // beyond its size
    ncclConfig_t older = NCCL_CONFIG_INITIALIZER;
    older.version = NCCL_VERSION(2, 13, 0);
    older.blocking = 77;
    for (ncclConfig_t* config : {&longer[0], &shorter, &older}) {
      ncclComm_t child = nullptr;
      EXPECT_NCCL(ncclCommSplit(rank.comm, 0, 0, &child, config));
      EXPECT_NCCL(ncclCommDestroy(child));
    }
    ncclConfig_t bad = NCCL_CONFIG_INITIALIZER;
    bad.magic = 1;
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(rank.comm, 0, 0, &child, &bad), ncclInvalidArgument);
  });
}

/// Ranks as threads with non-blocking communicators; `body` destroys or aborts.
void run_unblocked(int ranks, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(r, ranks);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ASSERT_EQ(ncclCommInitRankConfig(&rank.comm, ranks, id, r, &config), ncclInProgress);
      ASSERT_NE(rank.comm, nullptr);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NonBlocking, GoesThroughItsLife) {
  run_unblocked(3, [](Rank& rank) {
    ASSERT_EQ(outcome(rank.comm), ncclSuccess);
    Buffer<int> data(1, rank.rank);
    ncclResult_t result =
        ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
    ASSERT_EQ(outcome(rank.comm), ncclSuccess);
    rank.synchronize();
    EXPECT_EQ(data[0], 3);
    ncclComm_t child = nullptr;
    // Other than the rest it tells nothing of the state, and the child comes later.
    ASSERT_EQ(ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclSuccess);
    ASSERT_EQ(outcome(rank.comm), ncclSuccess);
    ASSERT_NE(child, nullptr);
    result = ncclCommFinalize(child);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
    ASSERT_EQ(outcome(child), ncclSuccess);
    EXPECT_NCCL(ncclCommDestroy(child));
    EXPECT_NCCL(ncclCommDestroy(rank.comm));
  });
}

TEST(NonBlocking, MayNotBeUsedWhileInProgress) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  Rank rank(0, 2);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  // The other rank never comes.
  ASSERT_EQ(ncclCommInitRankConfig(&rank.comm, 2, id, 0, &config), ncclInProgress);
  int value = 0;
  EXPECT_EQ(ncclCommCount(rank.comm, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(rank.comm), ncclInvalidArgument);
  EXPECT_EQ(ncclSend(nullptr, 0, ncclInt8, 1, rank.comm, rank.stream), ncclInvalidArgument);
  // That call's failure has become the state.
  EXPECT_EQ(outcome(rank.comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommFinalize(rank.comm), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommAbort(rank.comm));
}

TEST(NonBlocking, IsNotMixedWithBlockingOnes) {
  Rank rank(0, 1);
  ncclUniqueId ids[2];
  ASSERT_NCCL(ncclGetUniqueId(&ids[0]));
  ASSERT_NCCL(ncclGetUniqueId(&ids[1]));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[2] = {};
  ASSERT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclCommInitRankConfig(&comms[0], 1, ids[0], 0, &config));
  EXPECT_EQ(ncclCommInitRank(&comms[1], 1, ids[1], 0), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_NE(comms[0], nullptr);  // it was given out and can be given back
  EXPECT_EQ(outcome(comms[0]), ncclInvalidArgument);
  EXPECT_EQ(comms[1], nullptr);
  EXPECT_NCCL(ncclCommAbort(comms[0]));
}

TEST(NonBlocking, KeepsTheFailureOfACall) {
  run_unblocked(1, [](Rank& rank) {
    ASSERT_EQ(outcome(rank.comm), ncclSuccess);
    EXPECT_EQ(ncclSend(nullptr, 0, ncclInt8, 5, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(outcome(rank.comm), ncclInvalidArgument);
    int value = 0;
    EXPECT_EQ(ncclCommCount(rank.comm, &value), ncclInvalidArgument);
    EXPECT_NCCL(ncclCommAbort(rank.comm));
  });
}

/// Nothing of a group is in the stream before the state says so.
TEST(NonBlocking, DoesWholeGroupsLater) {
  run_unblocked(2, [](Rank& rank) {
    ASSERT_EQ(outcome(rank.comm), ncclSuccess);
    Buffer<int> data(2, rank.rank);
    ASSERT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclSend(data.data(), 1, ncclInt32, 1 - rank.rank, rank.comm, rank.stream));
    EXPECT_NCCL(ncclRecv(data.data() + 1, 1, ncclInt32, 1 - rank.rank, rank.comm, rank.stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    ASSERT_EQ(outcome(rank.comm), ncclSuccess);
    rank.synchronize();
    EXPECT_EQ(data[1], 1 - rank.rank);
    EXPECT_NCCL(ncclCommDestroy(rank.comm));
  });
}

/// Whatever ends a communicator is waited for, and the whole group with it.
TEST(NonBlocking, IsDestroyedBeforeTheCallReturns) {
  run_unblocked(2, [](Rank& rank) {
    ASSERT_EQ(outcome(rank.comm), ncclSuccess);
    Buffer<int> data(1, 1);
    ASSERT_NCCL(ncclGroupStart());
    ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream);
    ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
    ASSERT_EQ(outcome(rank.comm), ncclSuccess);
    ASSERT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
    EXPECT_EQ(data[0], 2);
    ncclResult_t state;
    EXPECT_EQ(ncclCommGetAsyncError(rank.comm, &state), ncclInvalidArgument);
  });
}

/// Of several ids one is used, and nothing waits for the others any more.
TEST(Life, IsMadeWithSeveralIds) {
  const auto threads = [] {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      if (word == "Threads:") return status >> word, std::stoi(word);
    }
    return -1;
  };
  Rank rank(0, 1);
  ncclUniqueId warm;
  ASSERT_NCCL(ncclGetUniqueId(&warm));
  ASSERT_NCCL(ncclCommInitRank(&rank.comm, 1, warm, 0));
  ASSERT_NCCL(ncclCommDestroy(rank.comm));
  const int before = threads();
  std::array<ncclUniqueId, 2> ids;
  for (ncclUniqueId& id : ids) ASSERT_NCCL(ncclGetUniqueId(&id));
  std::thread other([&] {
    Rank second(1, 2);
    ASSERT_NCCL(ncclCommInitRankScalable(&second.comm, 2, 1, 2, ids.data(), nullptr));
    EXPECT_NCCL(ncclCommDestroy(second.comm));
  });
  ASSERT_NCCL(ncclCommInitRankScalable(&rank.comm, 2, 0, 2, ids.data(), nullptr));
  EXPECT_NCCL(ncclCommDestroy(rank.comm));
  other.join();
  // The second root ends by itself; the test's time limit ends a wait in vain.
  while (threads() > before) std::this_thread::yield();
}

TEST(Registration, IsCountedAndTakenBack) {
  World(1).run([](Rank& rank) {
    Buffer<int> data(4);
    void* first = nullptr;
    void* second = nullptr;
    ASSERT_NCCL(ncclCommRegister(rank.comm, data.data(), 16, &first));
    ASSERT_NCCL(ncclCommRegister(rank.comm, data.data(), 16, &second));
    EXPECT_EQ(first, second);
    EXPECT_NCCL(ncclCommDeregister(rank.comm, first));
    EXPECT_NCCL(ncclCommDeregister(rank.comm, second));
    EXPECT_EQ(ncclCommDeregister(rank.comm, first), ncclInvalidUsage);
    EXPECT_NCCL(ncclCommDeregister(rank.comm, nullptr));
    EXPECT_EQ(ncclCommRegister(nullptr, data.data(), 16, &first), ncclInvalidArgument);
    ncclWindow_t window = nullptr;
    ASSERT_NCCL(ncclCommWindowRegister(rank.comm, nullptr, 0, &window, 0));
    EXPECT_EQ(window, nullptr);
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclCommWindowRegister(rank.comm, data.data(), 16, &window, 0));
    EXPECT_EQ(window, nullptr);
    ASSERT_NCCL(ncclGroupEnd());
    EXPECT_NE(window, nullptr);
    EXPECT_NCCL(ncclCommWindowDeregister(rank.comm, window));
    EXPECT_EQ(ncclCommWindowDeregister(rank.comm, window), ncclInvalidUsage);
  });
}

TEST(Config, HasItsValuesChecked) {
  World(1).run([](Rank& rank) {
    struct {
      int ncclConfig_t::*field;
      int wrong;
    } const cases[] = {
        {&ncclConfig_t::blocking, 2},   {&ncclConfig_t::cgaClusterSize, -1},
        {&ncclConfig_t::maxCTAs, 0},    {&ncclConfig_t::minCTAs, 4},  // without a maximum
        {&ncclConfig_t::splitShare, 2}, {&ncclConfig_t::CTAPolicy, 3},
    };
    ncclComm_t child = nullptr;
    for (const auto& wrong : cases) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.*wrong.field = wrong.wrong;
      EXPECT_EQ(ncclCommSplit(rank.comm, 0, 0, &child, &config), ncclInvalidArgument);
    }
    ncclConfig_t older = NCCL_CONFIG_INITIALIZER;
    older.version = NCCL_VERSION(2, 26, 0);
    older.CTAPolicy = 3;  // which that version did not have
    EXPECT_NCCL(ncclCommSplit(rank.comm, 0, 0, &child, &older));
    EXPECT_NCCL(ncclCommDestroy(child));
  });
}

}  // namespace
}  // namespace railyard::emulator
