// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives, and the calls that are made of them.
#include <stdint.h>

#include <algorithm>
#include <iostream>
#include <latch>
#include <random>
#include <vector>

#include "world.h"

namespace railyard::emulator {
namespace {

constexpr int kRanks = 4;

/// Byte `i` of message `index` from `source` to `target`.
uint8_t pattern(unsigned seed, int source, int target, size_t index, size_t i) {
  uint64_t x = seed * 1'000'003ULL + static_cast<uint64_t>(source * 10'007 + target * 101) +
               index * 31 + i / 7;
  return static_cast<uint8_t>((x * 0x9e3779b97f4a7c15ULL >> 56) ^ i);
}

Buffer<uint8_t> message(unsigned seed, int source, int target, size_t index, size_t bytes) {
  Buffer<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = pattern(seed, source, target, index, i);
  return data;
}

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
  for (size_t count : {size_t{1}, size_t{1000}, size_t{1} << 18}) {
    World(kRanks).run([&](Rank& rank) {
      Buffer<int> send(count * kRanks);
      Buffer<int> receive(count * kRanks, -1);
      for (size_t i = 0; i < send.size(); ++i) {
        send[i] = static_cast<int>(i) + rank.rank * 100'000'007;
      }
      ASSERT_NCCL(
          ncclAlltoAll(send.data(), receive.data(), count, ncclInt32, rank.comm, rank.stream));
      rank.synchronize();
      for (size_t i = 0; i < receive.size(); ++i) {
        size_t source = i / count;
        size_t there = static_cast<size_t>(rank.rank) * count + i % count;
        ASSERT_EQ(receive[i], static_cast<int>(there) + static_cast<int>(source) * 100'000'007);
      }
    });
  }
}

TEST(Point, GathersAndScatters) {
  constexpr size_t kCount = 777;
  World(kRanks).run([&](Rank& rank) {
    Buffer<double> own(kCount, 1.5 * rank.rank);
    Buffer<double> all(kCount * kRanks, -1);
    ASSERT_NCCL(ncclGather(own.data(), all.data(), kCount, ncclFloat64, 2, rank.comm, rank.stream));
    rank.synchronize();
    if (rank.rank != 2) {
      EXPECT_EQ(std::count(all.begin(), all.end(), -1), kCount * kRanks);
    }
    for (size_t i = 0; i < all.size() && rank.rank == 2; ++i) {
      ASSERT_EQ(all[i], 1.5 * static_cast<double>(i / kCount));
    }
    ASSERT_NCCL(
        ncclScatter(all.data(), own.data(), kCount, ncclFloat64, 2, rank.comm, rank.stream));
    rank.synchronize();
    EXPECT_EQ(std::count(own.begin(), own.end(), 1.5 * rank.rank), kCount);
  });
}

/// Sizes of the messages from `source` to `target` in one round; alike on all ranks.
std::vector<size_t> sizes(unsigned seed, int round, int source, int target) {
  std::seed_seq sequence{seed, static_cast<unsigned>(round), static_cast<unsigned>(source),
                         static_cast<unsigned>(target)};
  std::mt19937 random(sequence);
  std::vector<size_t> result(random() % 4);
  for (size_t& size : result) {
    size_t limits[] = {1, 16, 3000, 300'000, 1'500'000};
    size = random() % limits[random() % 5];
  }
  return result;
}

TEST(Point, MovesRandomMessages) {
  unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  World(kRanks).run([&](Rank& rank) {
    for (int round = 0; round < 6; ++round) {
      std::vector<Buffer<uint8_t>> sent;
      std::vector<Buffer<uint8_t>> received;
      std::vector<Buffer<uint8_t>> expected;
      ASSERT_NCCL(ncclGroupStart());
      for (int peer = kRanks - 1; peer >= 0; --peer) {
        for (size_t bytes : sizes(seed, round, rank.rank, peer)) {
          sent.push_back(message(seed, rank.rank, peer, bytes, bytes));
          ASSERT_NCCL(ncclSend(sent.back().data(), bytes, ncclUint8, peer, rank.comm, rank.stream));
        }
        for (size_t bytes : sizes(seed, round, peer, rank.rank)) {
          expected.push_back(message(seed, peer, rank.rank, bytes, bytes));
          received.emplace_back(bytes);
          ASSERT_NCCL(
              ncclRecv(received.back().data(), bytes, ncclInt8, peer, rank.comm, rank.stream));
        }
      }
      ASSERT_NCCL(ncclGroupEnd());
      rank.synchronize();
      for (size_t i = 0; i < received.size(); ++i) {
        ASSERT_EQ(received[i].copy(), expected[i].copy()) << "round " << round << " message " << i;
      }
    }
  });
}

TEST(Point, KeepsOrderAcrossGroupsAndSizesOfElements) {
  constexpr int kMessages = 50;
  World(3).run([&](Rank& rank) {
    Buffer<double> data(kMessages);
    for (int i = 0; i < kMessages; ++i) {
      auto at = static_cast<size_t>(i);
      if (rank.rank == 0) {
        data[at] = i;
        for (int peer : {1, 2}) {
          ASSERT_NCCL(ncclSend(&data[at], 1, ncclFloat64, peer, rank.comm, rank.stream));
        }
      } else {
        ASSERT_NCCL(ncclRecv(&data[at], 8, ncclUint8, 0, rank.comm, rank.stream));
      }
    }
    rank.synchronize();
    for (int i = 0; i < kMessages; ++i) ASSERT_EQ(data[static_cast<size_t>(i)], i);
  });
}

/// A zero-byte receive completes only after the send of it was issued.
TEST(Point, EmptyMessagesSynchronize) {
  for (int peer : {1, 2}) {  // of the same node, of another
    std::latch waiting(1);
    World(3).run([&](Rank& rank) {
      if (rank.rank == 0) {
        ASSERT_NCCL(ncclRecv(nullptr, 0, ncclInt8, peer, rank.comm, rank.stream));
        EXPECT_EQ(::cuStreamQuery(rank.stream), CUDA_ERROR_NOT_READY);
        waiting.count_down();
        rank.synchronize();
      } else if (rank.rank == peer) {
        waiting.wait();
        ASSERT_NCCL(ncclSend(nullptr, 0, ncclInt8, 0, rank.comm, rank.stream));
        rank.synchronize();
      }
    });
  }
}

TEST(Point, CopiesToItself) {
  World(1).run([](Rank& rank) {
    Buffer<int> a(100, 7);
    Buffer<int> b(100, 8);
    Buffer<int> c(100);
    Buffer<int> d(100);
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclRecv(c.data(), 100, ncclInt32, 0, rank.comm, rank.stream));
    ASSERT_NCCL(ncclSend(a.data(), 100, ncclInt32, 0, rank.comm, rank.stream));
    ASSERT_NCCL(ncclSend(b.data(), 100, ncclInt32, 0, rank.comm, rank.stream));
    ASSERT_NCCL(ncclRecv(d.data(), 100, ncclInt32, 0, rank.comm, rank.stream));
    ASSERT_NCCL(ncclGroupEnd());
    rank.synchronize();
    EXPECT_EQ(c[99], 7);
    EXPECT_EQ(d[99], 8);
  });
}

/// One peer that does not receive must not hold up another one in the same group.
TEST(Point, PeersProgressIndependently) {
  constexpr size_t kBytes = 8 << 20;  // more than any buffering
  std::latch third_done(1);
  World(3).run([&](Rank& rank) {
    Buffer<uint8_t> data(kBytes);
    if (rank.rank == 0) {
      ASSERT_NCCL(ncclGroupStart());
      ASSERT_NCCL(ncclSend(data.data(), kBytes, ncclUint8, 1, rank.comm, rank.stream));
      ASSERT_NCCL(ncclSend(data.data(), kBytes, ncclUint8, 2, rank.comm, rank.stream));
      ASSERT_NCCL(ncclGroupEnd());
    } else {
      if (rank.rank == 1) third_done.wait();
      ASSERT_NCCL(ncclRecv(data.data(), kBytes, ncclUint8, 0, rank.comm, rank.stream));
    }
    rank.synchronize();
    if (rank.rank == 2) third_done.count_down();
  });
}

}  // namespace
}  // namespace railyard::emulator
