// SPDX-License-Identifier: Apache-2.0
//
// Groups, wrong calls, streams, captures, several communicators, splits and the end of them.
#include <string.h>

#include <algorithm>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "world.h"

namespace railyard::emulator {
namespace {

TEST(Group, EndWithoutStartIsInvalid) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("ncclGroupStart"), std::string::npos);
}

struct Wrong {
  const char* name;
  ncclResult_t expected;
  ncclResult_t (*call)(ncclComm_t comm, CUstream stream, int* data);
};

constexpr auto kNoType = static_cast<ncclDataType_t>(ncclNumTypes);
constexpr size_t kHuge = ~size_t{0} / 2;
const Wrong kWrong[] = {
    {"null communicator", ncclInvalidArgument,
     [](auto, auto s, auto d) { return ncclSend(d, 1, ncclInt32, 0, nullptr, s); }},
    {"foreign communicator", ncclInvalidArgument,
     [](auto, auto s, auto d) {
       return ncclRecv(d, 1, ncclInt32, 0, reinterpret_cast<ncclComm_t>(d), s);
     }},
    {"peer too high", ncclInvalidArgument,
     [](auto c, auto s, auto d) { return ncclSend(d, 1, ncclInt32, 2, c, s); }},
    {"negative peer", ncclInvalidArgument,
     [](auto c, auto s, auto d) { return ncclRecv(d, 1, ncclInt32, -1, c, s); }},
    {"bad root", ncclInvalidArgument,
     [](auto c, auto s, auto d) { return ncclBroadcast(d, d, 1, ncclInt32, 2, c, s); }},
    {"bad type", ncclInvalidArgument,
     [](auto c, auto s, auto d) { return ncclSend(d, 1, kNoType, 1, c, s); }},
    {"bad operation", ncclInvalidArgument,
     [](auto c, auto s, auto d) {
       return ncclAllReduce(d, d, 1, ncclInt32, static_cast<ncclRedOp_t>(77), c, s);
     }},
    {"too many elements", ncclInvalidArgument,
     [](auto c, auto s, auto d) { return ncclSend(d, kHuge, ncclInt32, 1, c, s); }},
    {"too many blocks", ncclInvalidArgument,
     [](auto c, auto s, auto d) { return ncclAlltoAll(d, d, kHuge / 4, ncclInt32, c, s); }},
    {"send to oneself alone", ncclInvalidUsage,
     [](auto c, auto s, auto d) {
       int rank;
       ncclCommUserRank(c, &rank);
       return ncclSend(d, 1, ncclInt32, rank, c, s);
     }},
    {"receive from oneself alone", ncclInvalidUsage,
     [](auto c, auto s, auto d) {
       int rank;
       ncclCommUserRank(c, &rank);
       return ncclRecv(d, 1, ncclInt32, rank, c, s);
     }},
};

void expect_working(Rank& rank) {
  Buffer<int> data(1, rank.rank + 1);
  EXPECT_NCCL(
      ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream));
  rank.synchronize();
  EXPECT_EQ(data[0], rank.ranks * (rank.ranks + 1) / 2);
}

TEST(Group, RefusesWrongCallsAndGoesOn) {
  World(2).run([](Rank& rank) {
    Buffer<int> data(16);
    for (const Wrong& wrong : kWrong) {
      EXPECT_EQ(wrong.call(rank.comm, rank.stream, data.data()), wrong.expected) << wrong.name;
      EXPECT_STRNE(ncclGetLastError(nullptr), "") << wrong.name;
    }
    expect_working(rank);
  });
}

/// The outermost end returns what went wrong, and nothing of the group is done.
TEST(Group, OneWrongCallCancelsAll) {
  World(2).run([](Rank& rank) {
    Buffer<int> data(16, rank.rank);
    int peer = 1 - rank.rank;
    for (const Wrong& wrong : kWrong) {
      ASSERT_NCCL(ncclGroupStart());
      ASSERT_NCCL(ncclSend(data.data(), 1, ncclInt32, peer, rank.comm, rank.stream));
      ASSERT_NCCL(ncclGroupStart());
      wrong.call(rank.comm, rank.stream, data.data() + 4);
      ASSERT_NCCL(ncclGroupEnd());
      ASSERT_NCCL(ncclRecv(data.data() + 1, 1, ncclInt32, peer, rank.comm, rank.stream));
      EXPECT_EQ(ncclGroupEnd(), wrong.expected) << wrong.name;
    }
    rank.synchronize();
    EXPECT_EQ(data[1], rank.rank);
    expect_working(rank);
  });
}

/// A rank that is alone copies at once, even if the group fails; messages to itself are messages.
TEST(Group, OneRankDoesCollectivesAtOnce) {
  World(1).run([](Rank& rank) {
    Buffer<int> from(1, 5), to(1, 0), other(1, 0);
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(
        ncclAllReduce(from.data(), to.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    ASSERT_NCCL(ncclAlltoAll(from.data(), other.data(), 1, ncclInt32, rank.comm, rank.stream));
    rank.synchronize();
    EXPECT_EQ(to[0], 5);
    EXPECT_EQ(other[0], 5);
    ASSERT_NCCL(ncclSend(from.data(), 1, ncclInt32, 0, rank.comm, rank.stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  });
}

TEST(Group, SimulationLaunchesNothing) {
  World(2).run([](Rank& rank) {
    Buffer<int> data(4, rank.rank);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(
        ncclAllReduce(data.data(), data.data(), 4, ncclInt32, ncclSum, rank.comm, rank.stream));
    ASSERT_NCCL(ncclGroupSimulateEnd(&info));
    EXPECT_GT(info.estimatedTime, 0);
    rank.synchronize();
    EXPECT_EQ(data[0], rank.rank);
    ncclSimInfo_t wrong = {};
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclGroupSimulateEnd(&wrong));  // only the outermost end looks at it
    EXPECT_EQ(ncclGroupSimulateEnd(&wrong), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    expect_working(rank);
  });
}

/// All streams of a group wait for all of it, and it for all of them.
TEST(Group, JoinsItsStreams) {
  World(2).run([](Rank& rank) {
    CUstream other;
    ASSERT_CUDA(::cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    Buffer<int> send(1 << 16);
    Buffer<int> receive(1 << 16, -1);
    auto size = send.size();
    ASSERT_CUDA(::cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(send.data()), 5, size, other));
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclSend(send.data(), size, ncclInt32, 1 - rank.rank, rank.comm, other));
    ASSERT_NCCL(ncclRecv(receive.data(), size, ncclInt32, 1 - rank.rank, rank.comm, rank.stream));
    ASSERT_NCCL(ncclGroupEnd());
    ASSERT_CUDA(::cuStreamSynchronize(other));
    EXPECT_EQ(std::count(receive.begin(), receive.end(), 5), 1 << 16);
    ASSERT_CUDA(::cuStreamDestroy(other));
  });
}

/// Works of one communicator follow each other though their streams know nothing of one another.
TEST(Group, OrdersWorksAcrossStreams) {
  World(2).run([](Rank& rank) {
    CUstream streams[2] = {rank.stream, nullptr};
    ASSERT_CUDA(::cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    Buffer<int> data(100);
    for (size_t i = 0; i < 100; ++i) {
      CUstream stream = streams[i % 2];
      if (rank.rank == 0) {
        data[i] = static_cast<int>(i);
        ASSERT_NCCL(ncclSend(&data[i], 1, ncclInt32, 1, rank.comm, stream));
      } else {
        ASSERT_NCCL(ncclRecv(&data[i], 1, ncclInt32, 0, rank.comm, stream));
      }
    }
    for (CUstream stream : streams) ASSERT_CUDA(::cuStreamSynchronize(stream));
    for (size_t i = 0; i < 100; ++i) ASSERT_EQ(data[i], static_cast<int>(i));
    ASSERT_CUDA(::cuStreamDestroy(streams[1]));
  });
}

/// One thread, several devices: nothing in a group may wait for what comes later in it.
TEST(Group, OneThreadDrivesAllRanks) {
  constexpr int kRanks = 4;
  ncclComm_t comms[kRanks];
  ASSERT_NCCL(ncclCommInitAll(comms, kRanks, nullptr));
  std::vector<CUcontext> contexts(kRanks);
  std::vector<CUstream> streams(kRanks);
  std::vector<Buffer<int>> send;
  std::vector<Buffer<int>> receive;
  constexpr size_t kCount = 300'000;
  for (int r = 0; r < kRanks; ++r) {
    auto i = static_cast<size_t>(r);
    ASSERT_CUDA(::cuDevicePrimaryCtxRetain(&contexts[i], r));
    ASSERT_CUDA(::cuCtxSetCurrent(contexts[i]));
    ASSERT_CUDA(::cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    send.emplace_back(kCount * kRanks, r);
    receive.emplace_back(kCount * kRanks, -1);
    int value = -1;
    EXPECT_NCCL(ncclCommUserRank(comms[i], &value));
    EXPECT_EQ(value, r);
    EXPECT_NCCL(ncclCommCuDevice(comms[i], &value));
    EXPECT_EQ(value, r);
    EXPECT_NCCL(ncclCommCount(comms[i], &value));
    EXPECT_EQ(value, kRanks);
  }
  ASSERT_NCCL(ncclGroupStart());
  for (size_t i = 0; i < kRanks; ++i) {
    ASSERT_NCCL(
        ncclAlltoAll(send[i].data(), receive[i].data(), kCount, ncclInt32, comms[i], streams[i]));
    ASSERT_NCCL(ncclAllReduce(send[i].data(), send[i].data(), 10, ncclInt32, ncclSum, comms[i],
                              streams[i]));
  }
  ASSERT_NCCL(ncclGroupEnd());
  CUcontext current;
  ASSERT_CUDA(::cuCtxGetCurrent(&current));
  EXPECT_EQ(current, contexts.back());
  for (size_t i = 0; i < kRanks; ++i) {
    ASSERT_CUDA(::cuCtxSetCurrent(contexts[i]));
    ASSERT_CUDA(::cuStreamSynchronize(streams[i]));
    EXPECT_EQ(send[i][9], 0 + 1 + 2 + 3);
    for (size_t j = 0; j < receive[i].size(); ++j) {
      // The all-reduce came first: what rank 0 gets begins with its result.
      bool reduced = i == 0 && j % kCount < 10;
      ASSERT_EQ(receive[i][j], reduced ? 6 : static_cast<int>(j / kCount)) << i << " " << j;
    }
  }
  ASSERT_NCCL(ncclGroupStart());
  for (ncclComm_t comm : comms) ASSERT_NCCL(ncclCommDestroy(comm));
  ASSERT_NCCL(ncclGroupEnd());
  for (size_t i = 0; i < kRanks; ++i) {
    ASSERT_CUDA(::cuCtxSetCurrent(contexts[i]));
    ASSERT_CUDA(::cuStreamDestroy(streams[i]));
    ASSERT_CUDA(::cuDevicePrimaryCtxRelease(static_cast<int>(i)));
  }
}

TEST(Group, TwoCommunicatorsInAnyOrder) {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) ASSERT_NCCL(ncclGetUniqueId(&id));
  World(2).run([&](Rank& rank) {
    ncclComm_t comms[2];
    ASSERT_NCCL(ncclGroupStart());
    for (int i : {0, 1}) {
      int which = rank.rank == 0 ? i : 1 - i;
      ASSERT_NCCL(ncclCommInitRank(&comms[which], 2, ids[which], rank.rank));
    }
    ASSERT_NCCL(ncclGroupEnd());
    CUstream other;
    ASSERT_CUDA(::cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUstream streams[2] = {rank.stream, other};
    constexpr size_t kBytes = 5 << 20;
    Buffer<uint8_t> data[2] = {Buffer<uint8_t>(kBytes), Buffer<uint8_t>(kBytes)};
    ASSERT_NCCL(ncclGroupStart());
    for (int i : {0, 1}) {
      int which = rank.rank == 0 ? i : 1 - i;
      if (rank.rank == 0) std::fill(data[which].begin(), data[which].end(), which + 1);
      void* at = data[which].data();
      ASSERT_NCCL(rank.rank == 0
                      ? ncclSend(at, kBytes, ncclUint8, 1, comms[which], streams[which])
                      : ncclRecv(at, kBytes, ncclUint8, 0, comms[which], streams[which]));
    }
    ASSERT_NCCL(ncclGroupEnd());
    for (CUstream stream : streams) ASSERT_CUDA(::cuStreamSynchronize(stream));
    for (int which : {0, 1}) {
      EXPECT_EQ(std::count(data[which].begin(), data[which].end(), which + 1), kBytes);
      EXPECT_NCCL(ncclCommDestroy(comms[which]));
    }
    ASSERT_CUDA(::cuStreamDestroy(other));
  });
}

TEST(Split, OrdersRanksByKeyAndLeavesOutTheColourless) {
  World(5).run([](Rank& rank) {
    ncclComm_t child = nullptr;
    int color = rank.rank == 2 ? NCCL_SPLIT_NOCOLOR : rank.rank % 2;
    ASSERT_NCCL(ncclCommSplit(rank.comm, color, -rank.rank, &child, nullptr));
    if (rank.rank == 2) {
      EXPECT_EQ(child, nullptr);
    } else {
      int position = -1;
      int count = 0;
      ASSERT_NCCL(ncclCommUserRank(child, &position));
      ASSERT_NCCL(ncclCommCount(child, &count));
      EXPECT_EQ(count, 2);
      EXPECT_EQ(position, rank.rank >= 3 ? 0 : 1);
      Buffer<int> data(1, 1 << rank.rank);
      ASSERT_NCCL(
          ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, child, rank.stream));
      rank.synchronize();
      EXPECT_EQ(data[0], rank.rank % 2 == 0 ? 1 + 16 : 2 + 8);
      ASSERT_NCCL(ncclCommDestroy(child));
    }
    expect_working(rank);
  });
}

TEST(Life, IdLeavesItsEndEmpty) {
  ncclUniqueId id;
  memset(&id, 0xff, sizeof id);
  ASSERT_NCCL(ncclGetUniqueId(&id));
  EXPECT_EQ(std::count(id.internal + 64, id.internal + 128, 0), 64);
  int version = 0;
  EXPECT_NCCL(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

TEST(Life, NullCommunicatorsHaveNothingToEnd) {
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclSuccess);
  ncclResult_t state;
  int value;
  EXPECT_EQ(ncclCommGetAsyncError(nullptr, &state), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(nullptr, &value), ncclInvalidArgument);
}

TEST(Life, FinalizesOnceAndDestroysOnce) {
  DeviceThread device(0);
  ncclUniqueId id;
  ncclComm_t comm;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ASSERT_NCCL(ncclCommInitRankScalable(&comm, 1, 0, 1, &id, &config));
  EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclSend(nullptr, 0, ncclInt8, 0, comm, device.stream), ncclInvalidUsage);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
}

TEST(Life, RefusesWrongCreation) {
  DeviceThread device(0);
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclComm_t comm = reinterpret_cast<ncclComm_t>(&id);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  ncclConfig_t config = {};
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, ncclUniqueId{}, 0), ncclInvalidArgument);
  ncclComm_t comms[2];
  int twice[2] = {1, 1};
  EXPECT_EQ(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage);
  int absent[2] = {0, 99};
  EXPECT_EQ(ncclCommInitAll(comms, 2, absent), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(comms, -1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 1, 0, 2, &id, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 1, 0, 0, &id, nullptr), ncclInvalidArgument);
}

/// Two ranks that cannot be of one communicator.
void expect_refused(int devices[2], int ranks[2], int counts[2]) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      DeviceThread device(devices[i]);
      ncclComm_t comm;
      EXPECT_EQ(ncclCommInitRank(&comm, counts[i], id, ranks[i]), ncclInvalidUsage);
      EXPECT_EQ(comm, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Life, RanksMustAgree) {
  int devices[] = {0, 1};
  int same_device[] = {0, 0};
  int ranks[] = {0, 1};
  int same_rank[] = {1, 1};
  int counts[] = {2, 2};
  int other_counts[] = {2, 3};
  expect_refused(same_device, ranks, counts);
  expect_refused(devices, same_rank, counts);
  expect_refused(devices, ranks, other_counts);
}

TEST(Life, AllocatesMemory) {
  DeviceThread device(0);
  void* memory = nullptr;
  ASSERT_NCCL(ncclMemAlloc(&memory, 1000));
  memset(memory, 1, 1000);
  EXPECT_NCCL(ncclMemFree(memory));
  EXPECT_NCCL(ncclMemFree(nullptr));
  EXPECT_EQ(ncclMemAlloc(nullptr, 1), ncclUnhandledCudaError);
  EXPECT_NCCL(ncclMemAlloc(&memory, 0));
  EXPECT_EQ(memory, nullptr);
}

}  // namespace
}  // namespace railyard::emulator
