// SPDX-License-Identifier: Apache-2.0
//
// The exchange kernel on the host, alone: all ranks on one node, tables made by hand, no carrier.
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/doorbell.h"
#include "kernels/host_kernels.h"
#include "kernels/layout.h"

namespace railyard::kernels {
namespace {

constexpr uint64_t kCell = 256;
constexpr uint64_t kStride = 16 + kCell;

struct Shape {
  uint32_t ranks, slots, blocks, threads;
};

struct Posted {
  uint32_t peer;
  std::vector<std::byte> data;
};

/// One rank's memory and tables.
struct Rank {
  std::vector<std::byte> staging;
  std::vector<uint64_t> credit, arrival, cursors;
  std::vector<uint32_t> broken;
  std::vector<SendFlow> send;
  std::vector<RecvFlow> recv;
  std::vector<Lane> lanes;
  Traffic traffic = {};
  uint32_t blocks_done = 0, fault_claimed = 0;
  Doorbell doorbell = {};
  RankStatus status = {};
  CommTable table = {};
};

class Node {
 public:
  explicit Node(Shape shape) : shape_(shape), ranks_(shape.ranks) {
    const uint32_t n = shape.ranks, slots = shape.slots;
    for (Rank& rank : ranks_) {
      rank.staging.resize(n * slots * kStride, std::byte{0xEE});
      rank.credit.resize(n * slots);
      for (size_t i = 0; i < rank.credit.size(); ++i) rank.credit[i] = i % slots;
      rank.arrival.resize(n * slots);
      rank.cursors.resize(2 * n);
      rank.broken.resize(2 * n);
      rank.send.resize(n);
      rank.recv.resize(n);
      rank.lanes.resize(shape.blocks * 2 * n);
    }
    for (uint32_t me = 0; me < n; ++me) connect(me);
  }

  Rank& rank(uint32_t r) { return ranks_[r]; }

  /// Runs one exchange of every rank that posts anything, all at once.
  void run(std::vector<std::vector<Posted>>& sends, std::vector<std::vector<Posted>>& recvs) {
    std::vector<std::thread> kernels;
    for (uint32_t r = 0; r < shape_.ranks; ++r) {
      kernels.emplace_back([&, r] { run_rank(r, sends[r], recvs[r]); });
    }
    for (std::thread& kernel : kernels) kernel.join();
  }

  void run_rank(uint32_t r, std::vector<Posted>& sends, std::vector<Posted>& recvs) {
    std::vector<FlowWork> flows;
    std::vector<MessageWork> messages;
    const auto add = [&](std::vector<Posted>& posted) {
      uint32_t count = 0;
      for (uint32_t peer = 0; peer < shape_.ranks; ++peer) {
        const auto first = static_cast<uint32_t>(messages.size());
        for (Posted& message : posted) {
          if (message.peer == peer) messages.push_back({message.data.data(), message.data.size()});
        }
        const auto added = static_cast<uint32_t>(messages.size()) - first;
        if (added == 0) continue;
        flows.push_back({peer, first, added, 0});
        ++count;
      }
      return count;
    };
    ExchangeWork work = {};
    work.sends = add(sends);
    work.recvs = add(recvs);
    work.flows = flows.data();
    work.messages = messages.data();
    uint64_t done = 0;
    work.done = &done;
    const CommTable* table = &ranks_[r].table;
    const ExchangeWork* pointer = &work;
    void* args[] = {&table, &pointer};
    run_on_host(host_kernels()[0], shape_.blocks, shape_.threads, args);
    EXPECT_EQ(done, 1U);
  }

  void abort(uint32_t r) {
    std::atomic_ref(ranks_[r].status.abort).store(1);
    notify(&ranks_[r].doorbell);
  }

 private:
  void connect(uint32_t me) {
    Rank& rank = ranks_[me];
    for (uint32_t peer = 0; peer < shape_.ranks; ++peer) {
      if (peer == me) continue;
      Rank& other = ranks_[peer];
      const uint32_t slots = shape_.slots;
      rank.send[peer].credit = &rank.credit[peer * slots];
      rank.send[peer].cells = &rank.staging[peer * slots * kStride];
      rank.send[peer].peer_arrival = &other.arrival[me * slots];
      rank.send[peer].peer_doorbell = &other.doorbell;
      rank.recv[peer].arrival = &rank.arrival[peer * slots];
      rank.recv[peer].cells = &other.staging[me * slots * kStride];
      rank.recv[peer].peer_credit = &other.credit[me * slots];
      rank.recv[peer].peer_doorbell = &other.doorbell;
    }
    CommTable& table = rank.table;
    table.rank = me;
    table.ranks = shape_.ranks;
    table.slots = shape_.slots;
    table.cell_bytes = kCell;
    table.cell_stride = kStride;
    table.send = rank.send.data();
    table.recv = rank.recv.data();
    table.send_next = rank.cursors.data();
    table.recv_next = rank.cursors.data() + shape_.ranks;
    table.send_broken = rank.broken.data();
    table.recv_broken = rank.broken.data() + shape_.ranks;
    table.lanes = rank.lanes.data();
    table.traffic = &rank.traffic;
    table.blocks_done = &rank.blocks_done;
    table.fault_claimed = &rank.fault_claimed;
    table.doorbell = &rank.doorbell;
    table.status = &rank.status;
  }

  Shape shape_;
  std::vector<Rank> ranks_;
};

std::byte pattern(uint32_t src, uint32_t dst, uint64_t message, uint64_t offset) {
  return static_cast<std::byte>((src * 131 + dst * 31 + message * 7 + offset * 13 + offset / 256) &
                                0xff);
}

class KernelTest : public testing::TestWithParam<Shape> {};

TEST_P(KernelTest, RandomExchangesArriveWhole) {
  const Shape shape = GetParam();
  const uint32_t seed = 20260u + shape.ranks;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Node node(shape);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::vector<Posted>> sends(shape.ranks), recvs(shape.ranks), expected(shape.ranks);
    for (uint32_t src = 0; src < shape.ranks; ++src) {
      for (uint32_t dst = 0; dst < shape.ranks; ++dst) {
        if (src == dst) continue;
        const uint64_t messages = random() % 4;
        for (uint64_t m = 0; m < messages; ++m) {
          const uint64_t bytes = random() % 2 == 0 ? 0 : random() % (kCell * 9);
          Posted message{dst, std::vector<std::byte>(bytes)};
          for (uint64_t i = 0; i < bytes; ++i) message.data[i] = pattern(src, dst, m, i);
          expected[dst].push_back({src, message.data});
          recvs[dst].push_back({src, std::vector<std::byte>(bytes, std::byte{0x55})});
          sends[src].push_back(std::move(message));
        }
      }
    }
    node.run(sends, recvs);
    for (uint32_t dst = 0; dst < shape.ranks; ++dst) {
      for (size_t i = 0; i < recvs[dst].size(); ++i) {
        ASSERT_EQ(recvs[dst][i].data, expected[dst][i].data)
            << "round " << round << ", rank " << dst << ", from " << recvs[dst][i].peer;
      }
      ASSERT_EQ(node.rank(dst).status.fault.fault, 0U);
    }
  }
  uint64_t exchanges = 0;
  for (uint32_t r = 0; r < shape.ranks; ++r) exchanges += node.rank(r).status.exchanges;
  EXPECT_EQ(exchanges, 40U * shape.ranks);
}

TEST_P(KernelTest, SizeMismatchEndsBothSidesWithBothSizes) {
  const Shape shape = GetParam();
  Node node(shape);
  std::vector<std::vector<Posted>> sends(shape.ranks), recvs(shape.ranks);
  sends[0].push_back({1, std::vector<std::byte>(kCell * 40)});
  recvs[1].push_back({0, std::vector<std::byte>(kCell * 3 + 1)});
  node.run(sends, recvs);
  const FaultRecord& fault = node.rank(1).status.fault;
  EXPECT_EQ(fault.fault, static_cast<uint32_t>(Fault::kSizeMismatch));
  EXPECT_EQ(fault.source, 0U);
  EXPECT_EQ(fault.destination, 1U);
  EXPECT_EQ(fault.sent, kCell * 40);
  EXPECT_EQ(fault.expected, kCell * 3 + 1);
  EXPECT_EQ(node.rank(0).status.fault.fault, static_cast<uint32_t>(Fault::kPeerFailed));
}

TEST_P(KernelTest, AbortReleasesAWaitingKernel) {
  const Shape shape = GetParam();
  Node node(shape);
  std::vector<Posted> sends, recvs;
  recvs.push_back({1, std::vector<std::byte>(10)});
  std::thread kernel([&] { node.run_rank(0, sends, recvs); });
  while (std::atomic_ref(node.rank(0).doorbell.sleepers).load() == 0) std::this_thread::yield();
  node.abort(0);
  kernel.join();
  EXPECT_EQ(node.rank(0).status.fault.fault, 0U);
}

TEST_P(KernelTest, ALateReceiverDoesNotBlockOtherFlows) {
  const Shape shape = GetParam();
  if (shape.ranks < 3) GTEST_SKIP() << "needs three ranks";
  Node node(shape);
  // Rank 0 sends far more than its slots hold to rank 1, who is not there yet, and to rank 2.
  std::vector<Posted> none, sends, to_one, to_two;
  sends.push_back({1, std::vector<std::byte>(kCell * 50)});
  sends.push_back({2, std::vector<std::byte>(kCell * 50)});
  to_one.push_back({0, std::vector<std::byte>(kCell * 50)});
  to_two.push_back({0, std::vector<std::byte>(kCell * 50)});
  std::thread source([&] { node.run_rank(0, sends, none); });
  node.run_rank(2, none, to_two);  // returns although rank 1 has not called
  node.run_rank(1, none, to_one);
  source.join();
}

INSTANTIATE_TEST_SUITE_P(Shapes, KernelTest,
                         testing::Values(Shape{2, 1, 1, 1}, Shape{3, 2, 4, 1}, Shape{4, 4, 3, 4},
                                         Shape{2, 5, 2, 4}, Shape{5, 3, 1, 4}),
                         [](const auto& shape) {
                           const Shape& s = shape.param;
                           return "ranks" + std::to_string(s.ranks) + "slots" +
                                  std::to_string(s.slots) + "blocks" + std::to_string(s.blocks) +
                                  "threads" + std::to_string(s.threads);
                         });

}  // namespace
}  // namespace railyard::kernels
