// SPDX-License-Identifier: Apache-2.0
//
// Work that is captured into a graph and replayed.
#include <algorithm>

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

}  // namespace
}  // namespace railyard::emulator
