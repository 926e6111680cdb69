// SPDX-License-Identifier: Apache-2.0
//
// One rank of the tests that run ranks as processes; its place is in the launcher's variables.
//
//   exchange       all-to-all, uneven messages and an all-reduce; checks what it gets
//   refused        returns 0 if no communicator can be made
//   die RANK       that rank kills itself; returns 0 if all others are told
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "world.h"

namespace railyard::emulator {
namespace {

int variable(const char* name) { return ::atoi(::getenv(name)); }

void exchange(Rank& rank) {
  constexpr size_t kCount = 100'000;
  auto ranks = static_cast<size_t>(rank.ranks);
  Buffer<int> send(kCount * ranks);
  Buffer<int> receive(kCount * ranks);
  for (size_t i = 0; i < send.size(); ++i) send[i] = rank.rank * 1'000'003 + static_cast<int>(i);
  ASSERT_NCCL(ncclAlltoAll(send.data(), receive.data(), kCount, ncclInt32, rank.comm, rank.stream));
  ASSERT_NCCL(
      ncclAllReduce(send.data(), send.data(), 1000, ncclInt32, ncclSum, rank.comm, rank.stream));
  rank.synchronize();
  for (size_t i = 0; i < receive.size(); ++i) {
    size_t there = static_cast<size_t>(rank.rank) * kCount + i % kCount;
    ASSERT_EQ(receive[i], static_cast<int>(i / kCount) * 1'000'003 + static_cast<int>(there));
  }
  int sum = rank.ranks * (rank.ranks - 1) / 2 * 1'000'003;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(send[static_cast<size_t>(i)], sum + i * rank.ranks);
  // Rank r sends r + 1 bytes to everyone below it.
  Buffer<char> small(4096);
  ASSERT_NCCL(ncclGroupStart());
  for (int peer = 0; peer < rank.rank; ++peer) {
    ASSERT_NCCL(ncclSend(small.data(), static_cast<size_t>(rank.rank + 1), ncclInt8, peer,
                         rank.comm, rank.stream));
  }
  for (int peer = rank.rank + 1; peer < rank.ranks; ++peer) {
    ASSERT_NCCL(ncclRecv(small.data() + peer * 32, static_cast<size_t>(peer + 1), ncclInt8, peer,
                         rank.comm, rank.stream));
  }
  ASSERT_NCCL(ncclGroupEnd());
  rank.synchronize();
}

void lose(Rank& rank, int victim) {
  Buffer<int> data(1);
  ASSERT_NCCL(
      ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream));
  rank.synchronize();
  if (rank.rank == victim) ::kill(::getpid(), SIGKILL);
  ASSERT_NCCL(ncclRecv(data.data(), 1, ncclInt32, victim, rank.comm, rank.stream));
  rank.synchronize();
  ncclResult_t state;
  ASSERT_NCCL(ncclCommGetAsyncError(rank.comm, &state));
  EXPECT_EQ(state, ncclRemoteError);
}

int run(int argc, char** argv) {
  Rank rank(variable("LOCAL_RANK"), variable("WORLD_SIZE"));
  rank.rank = variable("RANK");
  std::string meeting = std::string(::getenv("MASTER_ADDR")) + ":" + ::getenv("MASTER_PORT");
  ::setenv("NCCL_COMM_ID", meeting.c_str(), 1);
  ncclUniqueId id;
  EXPECT_NCCL(ncclGetUniqueId(&id));
  ncclResult_t created = ncclCommInitRank(&rank.comm, rank.ranks, id, rank.rank);
  if (argc == 2 && ::strcmp(argv[1], "refused") == 0) return created == ncclInvalidUsage ? 0 : 1;
  EXPECT_NCCL(created);
  if (testing::Test::HasFailure()) return 1;
  if (argc == 2 && ::strcmp(argv[1], "exchange") == 0) exchange(rank);
  if (argc == 3 && ::strcmp(argv[1], "die") == 0) lose(rank, ::atoi(argv[2]));
  ncclResult_t state = ncclSuccess;
  EXPECT_NCCL(ncclCommGetAsyncError(rank.comm, &state));
  // What has failed can only be aborted.
  EXPECT_EQ(ncclCommDestroy(rank.comm), state);
  EXPECT_NCCL(ncclCommAbort(state != ncclSuccess ? rank.comm : nullptr));
  return testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace
}  // namespace railyard::emulator

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return railyard::emulator::run(argc, argv);
}
