// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives, and what is made of them.
#include <stdint.h>

#include <algorithm>
#include <random>
#include <vector>

#include "world.h"

namespace railyard::emulator {
namespace {

constexpr int kRanks = 4;

TEST(Point, SendsFromRankToRank) {
  World(2).run([](Rank& rank) {
    Buffer<int> data(1000, rank.rank == 0 ? 42 : 0);
    if (rank.rank == 0) {
      ASSERT_NCCL(ncclSend(data.data(), 1000, ncclInt32, 1, rank.comm, rank.stream));
    } else {
      ASSERT_NCCL(ncclRecv(data.data(), 1000, ncclInt32, 0, rank.comm, rank.stream));
    }
    rank.synchronize();
    EXPECT_EQ(std::count(data.begin(), data.end(), 42), 1000);
  });
}

TEST(Point, AlltoAllMovesBlocks) {
  for (size_t count : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
    World(kRanks).run([&](Rank& rank) {
      Buffer<int> send(count * kRanks);
      Buffer<int> receive(count * kRanks, -1);
      for (size_t i = 0; i < send.size(); ++i) {
        send[i] = static_cast<int>(i) + rank.rank * 1'000'000'007;
      }
      ASSERT_NCCL(
          ncclAlltoAll(send.data(), receive.data(), count, ncclInt32, rank.comm, rank.stream));
      rank.synchronize();
      for (size_t i = 0; i < receive.size(); ++i) {
        size_t source = i / count;
        size_t there = static_cast<size_t>(rank.rank) * count + i % count;
        ASSERT_EQ(receive[i], static_cast<int>(there) + static_cast<int>(source) * 1'000'000'007);
      }
    });
  }
}

}  // namespace
}  // namespace railyard::emulator
