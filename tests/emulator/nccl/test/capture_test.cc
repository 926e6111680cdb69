// SPDX-License-Identifier: Apache-2.0
//
// Work that is captured into a graph and replayed.
#include <algorithm>
#include <atomic>

#include "world.h"

namespace railyard::emulator {
namespace {

TEST(Capture, ReplaysCapturedWork) {
  World(3).run([](Rank& rank) {
    Buffer<int> send(3);
    Buffer<int> receive(3);
    CUgraph graph;
    CUgraphExec executable;
    ASSERT_CUDA(::cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ASSERT_NCCL(ncclAlltoAll(send.data(), receive.data(), 1, ncclInt32, rank.comm, rank.stream));
    ASSERT_CUDA(::cuStreamEndCapture(rank.stream, &graph));
    ASSERT_CUDA(::cuGraphInstantiate(&executable, graph, 0));
    for (int round = 0; round < 3; ++round) {
      std::fill(send.begin(), send.end(), 10 * round + rank.rank);
      ASSERT_CUDA(::cuGraphLaunch(executable, rank.stream));
      rank.synchronize();
      for (int i = 0; i < 3; ++i) EXPECT_EQ(receive[static_cast<size_t>(i)], 10 * round + i);
    }
    ASSERT_CUDA(::cuGraphExecDestroy(executable));
    ASSERT_CUDA(::cuGraphDestroy(graph));
  });
}

/// All-reduces into `data` captured once.
CUgraphExec capture_sum(Rank& rank, Buffer<int>& data) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  EXPECT_CUDA(::cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_NCCL(
      ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream));
  EXPECT_CUDA(::cuStreamEndCapture(rank.stream, &graph));
  EXPECT_CUDA(::cuGraphInstantiate(&executable, graph, 0));
  EXPECT_CUDA(::cuGraphDestroy(graph));
  return executable;
}

TEST(Capture, KeepsTheOrderOfOtherWorkOnOtherStreams) {
  World(2).run([](Rank& rank) {
    CUstream other = nullptr;
    ASSERT_CUDA(::cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    Buffer<int> data(1, 1);
    CUgraphExec executable = capture_sum(rank, data);
    Buffer<int> message(1, 7);
    for (int round = 0; round < 20; ++round) {
      data[0] = 1;
      // One rank by graph, the other not; then something else of the communicator at once.
      if (rank.rank == 0) {
        ASSERT_CUDA(::cuGraphLaunch(executable, rank.stream));
      } else {
        ASSERT_NCCL(
            ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, rank.comm, rank.stream));
      }
      ASSERT_NCCL(ncclBroadcast(message.data(), message.data(), 1, ncclInt32, 0, rank.comm, other));
      rank.synchronize();
      ASSERT_CUDA(::cuStreamSynchronize(other));
      EXPECT_EQ(data[0], 2);
      EXPECT_EQ(message[0], 7);
    }
    ASSERT_CUDA(::cuGraphExecDestroy(executable));
    ASSERT_CUDA(::cuStreamDestroy(other));
  });
}

TEST(Capture, KeepsTheCommunicatorUntilTheGraphIsGone) {
  World(2).run([](Rank& rank) {
    ncclComm_t world = rank.comm, child = nullptr;
    ASSERT_NCCL(ncclCommSplit(world, 0, 0, &child, nullptr));
    rank.comm = child;
    Buffer<int> data(1, 1);
    CUgraphExec executable = capture_sum(rank, data);
    std::atomic<bool> destroyed{false};
    std::thread destroyer([&] {
      EXPECT_NCCL(ncclCommDestroy(child));
      EXPECT_TRUE(destroyed);
    });
    ASSERT_CUDA(::cuGraphLaunch(executable, rank.stream));
    rank.synchronize();
    destroyed = true;
    ASSERT_CUDA(::cuGraphExecDestroy(executable));
    destroyer.join();
    rank.comm = world;
  });
}

TEST(Capture, TakesAllStreamsOfAGroupOrNone) {
  World(2).run([](Rank& rank) {
    CUstream other = nullptr;
    ASSERT_CUDA(::cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    Buffer<int> data(2, 1);
    ASSERT_CUDA(::cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ASSERT_NCCL(ncclGroupStart());
    ncclAllReduce(&data[0], &data[0], 1, ncclInt32, ncclSum, rank.comm, rank.stream);
    ncclAllReduce(&data[1], &data[1], 1, ncclInt32, ncclSum, rank.comm, other);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    CUgraph graph = nullptr;
    ASSERT_CUDA(::cuStreamEndCapture(rank.stream, &graph));
    ASSERT_CUDA(::cuGraphDestroy(graph));
    ASSERT_CUDA(::cuStreamDestroy(other));
  });
}

}  // namespace
}  // namespace railyard::emulator
