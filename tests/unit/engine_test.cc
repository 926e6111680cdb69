// SPDX-License-Identifier: Apache-2.0
//
// Engines of several ranks in one process, over real tcp carriers and the emulated driver: the
// whole data path below joining.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine_cluster.h"

namespace railyard::exchange {
namespace {

class EngineTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(EngineTest, RandomExchangesArriveWholeByTheRightPath) {
  const std::vector<int>& nodes = GetParam();
  const size_t ranks = nodes.size();
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Cluster cluster(nodes, 1 << 20);
  std::vector<kernels::Traffic> want(ranks);
  for (int round = 0; round < 15; ++round) {
    std::vector<Exchange> exchanges(ranks);
    std::vector<std::pair<Bytes, Bytes>> buffers;  // sent, received
    buffers.reserve(ranks * ranks * 3);
    for (size_t src = 0; src < ranks; ++src) {
      for (size_t dst = 0; dst < ranks; ++dst) {
        const size_t messages = random() % 3;
        for (size_t m = 0; m < messages; ++m) {
          const size_t bytes = random() % 3 == 0 ? 0 : random() % (random() % 4 ? 3000 : 700'000);
          auto& [sent, received] = buffers.emplace_back(pattern(src, dst, m, bytes), Bytes(bytes));
          exchanges[src].sends.push_back({static_cast<int>(dst), sent.data(), bytes});
          exchanges[dst].recvs.push_back({static_cast<int>(src), received.data(), bytes});
          if (src == dst) {
            want[src].self_bytes += bytes;
          } else if (nodes[src] == nodes[dst]) {
            want[dst].local_bytes += bytes;
            want[dst].local_messages += 1;
          } else {
            want[src].phase1_bytes += bytes;
            want[src].phase1_messages += 1;
            want[dst].phase2_bytes += bytes;
            want[dst].phase2_messages += 1;
          }
        }
      }
    }
    for (size_t r = 0; r < ranks; ++r) {
      const Status status = cluster.launch(r, exchanges[r]);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (size_t r = 0; r < ranks; ++r) cluster.synchronize(r);
    for (const auto& [sent, received] : buffers) ASSERT_EQ(sent, received) << "round " << round;
  }
  for (size_t r = 0; r < ranks; ++r) {
    const Statistics got = cluster.engine(r).statistics();
    EXPECT_EQ(got.exchanges, 15U);
    EXPECT_EQ(got.traffic.phase1_bytes, want[r].phase1_bytes);
    EXPECT_EQ(got.traffic.phase1_messages, want[r].phase1_messages);
    EXPECT_EQ(got.traffic.phase2_bytes, want[r].phase2_bytes);
    EXPECT_EQ(got.traffic.phase2_messages, want[r].phase2_messages);
    EXPECT_EQ(got.traffic.local_bytes, want[r].local_bytes);
    EXPECT_EQ(got.traffic.local_messages, want[r].local_messages);
    EXPECT_EQ(got.traffic.self_bytes, want[r].self_bytes);
  }
  cluster.farewell();
}

INSTANTIATE_TEST_SUITE_P(Layouts, EngineTest,
                         testing::Values(std::vector<int>{0, 0, 1, 1},
                                         std::vector<int>{0, 1, 1, 0, 1}, std::vector<int>{0, 1},
                                         std::vector<int>{0, 0, 1, 2, 2}));

TEST(EngineFailureTest, SizeMismatchNamesBothRanksAndSizes) {
  Cluster cluster({0, 0, 1, 1}, 1 << 20);
  Bytes data(1000);
  Exchange send, receive;
  send.sends.push_back({3, data.data(), 1000});
  Bytes other(400);
  receive.recvs.push_back({0, other.data(), 400});
  ASSERT_TRUE(cluster.launch(0, send).ok());
  ASSERT_TRUE(cluster.launch(3, receive).ok());
  cluster.synchronize(3);
  const Status status = cluster.engine(3).error();
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  for (const char* part : {"rank 0", "rank 3", "1000", "400"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_EQ(cluster.launch(3, receive).code(), Code::kInvalidUsage);
}

TEST(EngineFailureTest, ALostRankIsAnErrorAtASenderThatHasNoLinkToIt) {
  Cluster cluster({0, 0, 1, 1}, 1 << 20);
  Bytes data(3'000'000);  // more than the slots of a flow hold
  Exchange send;
  send.sends.push_back({3, data.data(), data.size()});
  ASSERT_TRUE(cluster.launch(0, send).ok());
  cluster.lose(3);
  cluster.synchronize(0);
  const Status status = cluster.engine(0).error();
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_NE(status.message().find("rank 3"), std::string::npos) << status.message();
}

TEST(EngineFailureTest, AbortEndsAWaitingReceive) {
  Cluster cluster({0, 1}, 1 << 20);
  Bytes data(100);
  Exchange receive;
  receive.recvs.push_back({1, data.data(), 100});
  ASSERT_TRUE(cluster.launch(0, receive).ok());
  cluster.engine(0).abort();
  cluster.synchronize(0);
}

TEST(EngineFailureTest, UnpairedMessageToOneselfIsRefused) {
  Cluster cluster({0, 1}, 1 << 20);
  Bytes data(100);
  Exchange exchange;
  exchange.sends.push_back({0, data.data(), 100});
  EXPECT_EQ(cluster.launch(0, exchange).code(), Code::kInvalidUsage);
}

}  // namespace
}  // namespace railyard::exchange
