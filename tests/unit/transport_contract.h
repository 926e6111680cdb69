// SPDX-License-Identifier: Apache-2.0
//
// What every transport must do, as tests to be instantiated with a maker of transports:
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract, testing::Values(TransportKind{"tcp", make}));
//
// Carriers of one process talk to each other. A Carrier here plays by the rules of the exchange:
// slot k of each pair is filled again only when its credit has come back, and every byte of a cell
// tells its sender, sequence and position.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/unique_fd.h"
#include "transport/transport.h"

namespace railyard::transport {

struct TransportKind {
  std::string name;
  std::function<std::unique_ptr<Transport>()> make;
};
inline void PrintTo(const TransportKind& kind, std::ostream* out) { *out << kind.name; }

inline constexpr uint32_t kSlots = 4;  ///< of each pair, in each direction
inline constexpr uint64_t kSlotBytes = 16 << 10;
inline constexpr std::chrono::seconds kPatience(240);

inline uint64_t seed_of_run() {
  const char* given = std::getenv("RAILYARD_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10)
                                         : (uint64_t{std::random_device{}()} << 20) ^ 0x5eed;
  std::cout << "RAILYARD_TEST_SEED=" << seed << "\n";
  return seed;
}

inline std::byte pattern(uint64_t sender, uint64_t sequence, uint64_t position) {
  return static_cast<std::byte>((position * 0x9e37 + sequence * 0x85eb + sender * 0xc2b3) >> 4);
}

inline bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

/// A transport, its memory and what was heard from it. Thread-bound.
class Carrier final : public Receiver {
 public:
  struct Head {
    uint32_t sender = 0, slot = 0;
    uint64_t sequence = 0, bytes = 0;
  };
  struct Flow {
    LinkId link{};
    uint64_t to_send = 0, sent = 0, received = 0, credits = 0;
    std::vector<uint32_t> free = std::vector<uint32_t>(kSlots);
  };

  Carrier(std::unique_ptr<Transport> made, uint32_t index, uint32_t carriers, uint64_t seed)
      : transport(std::move(made)),
        me(index),
        staging(carriers * kSlots * kSlotBytes),
        landing_memory(carriers * kSlots * kSlotBytes, std::byte{0xee}),
        flows(carriers),
        random_(seed * 1000 + index) {
    for (Flow& flow : flows) {
      for (uint32_t slot = 0; slot < kSlots; ++slot) flow.free[slot] = slot;
    }
    Area from{staging.data(), 0, staging.size(), -1};
    Area to{landing_memory.data(), 0, landing_memory.size(), -1};
    const Status status = transport->listen(from, to);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  void open(Carrier& peer) {
    Result<LinkId> link = transport->open(peer.transport->address(), name_of(peer.me));
    ASSERT_TRUE(link.ok()) << link.status().message();
    flows[peer.me].link = *link;
  }
  static std::string name_of(uint32_t index) { return "carrier " + std::to_string(index); }

  /// Sends as much as is wanted and slots allow; cells of random size.
  void pump() {
    for (uint32_t peer = 0; peer < flows.size(); ++peer) {
      Flow& flow = flows[peer];
      while (flow.sent < flow.to_send && !flow.free.empty() && !silent) send_one(peer);
    }
  }
  void send_one(uint32_t peer) {
    Flow& flow = flows[peer];
    const size_t pick = random_() % flow.free.size();
    const uint32_t slot = flow.free[pick];
    flow.free.erase(flow.free.begin() + static_cast<std::ptrdiff_t>(pick));
    // Log-uniform, so that small ones come often and full ones too.
    const uint64_t most = (kSlotBytes - sizeof(Head)) >> (random_() % 11);
    const Head head{me, peer * kSlots + slot, flow.sent++, sizeof(Head) + random_() % (most + 1)};
    const uint64_t offset = (peer * kSlots + slot) * kSlotBytes;
    std::memcpy(&staging[offset], &head, sizeof head);
    for (uint64_t i = sizeof head; i < head.bytes; ++i) {
      staging[offset + i] = pattern(me, head.sequence, i);
    }
    const uint32_t tag = me * kSlots + slot;
    transport->post_cell(flow.link,
                         {tag, offset, tag * kSlotBytes, static_cast<uint32_t>(head.bytes)});
  }
  bool step() {
    const bool moved = transport->progress(*this);
    pump();
    return moved;
  }

  bool complete() const {
    return std::all_of(flows.begin(), flows.end(), [](const Flow& flow) {
      return flow.sent == flow.to_send && flow.credits == flow.sent;
    });
  }
  uint64_t received() const {
    uint64_t sum = 0;
    for (const Flow& flow : flows) sum += flow.received;
    return sum;
  }

  std::span<std::byte> landing(LinkId, uint32_t tag) override {
    const uint64_t offset = uint64_t{tag} * kSlotBytes;
    if (tag >= flows.size() * kSlots) return {};
    return {landing_memory.data() + offset, kSlotBytes};
  }
  void on_cell(LinkId link, uint32_t tag) override {
    const uint64_t offset = uint64_t{tag} * kSlotBytes;
    Head head;
    std::memcpy(&head, &landing_memory[offset], sizeof head);
    const uint32_t sender = tag / kSlots;
    ASSERT_EQ(head.sender, sender);
    ASSERT_EQ(head.slot, me * kSlots + tag % kSlots);
    ASSERT_LE(head.bytes, kSlotBytes);
    EXPECT_EQ(link, flows[sender].link);
    EXPECT_FALSE(downs.contains(link)) << "a cell on a link that is down";
    for (uint64_t i = sizeof head; i < head.bytes; ++i) {
      ASSERT_EQ(landing_memory[offset + i], pattern(sender, head.sequence, i)) << "byte " << i;
    }
    // What is behind the cell belongs to nobody and stays as it was poisoned.
    for (uint64_t i = head.bytes; i < kSlotBytes; ++i) {
      ASSERT_EQ(landing_memory[offset + i], std::byte{0xee}) << "byte " << i << " behind the cell";
    }
    std::fill_n(&landing_memory[offset], head.bytes, std::byte{0xee});
    ++flows[sender].received;
    if (give_credits) transport->post_credit(link, head.slot);
  }
  void on_credit(LinkId, uint32_t tag) override {
    const uint32_t peer = tag / kSlots;
    ASSERT_LT(peer, flows.size());
    Flow& flow = flows[peer];
    const uint32_t slot = tag % kSlots;
    ASSERT_EQ(std::count(flow.free.begin(), flow.free.end(), slot), 0) << "a credit too many";
    flow.free.push_back(slot);
    ++flow.credits;
  }
  void on_link_down(LinkId link, const Status& why) override {
    EXPECT_TRUE(downs.emplace(link, why).second) << "a link is down twice";
    EXPECT_EQ(why.code(), Code::kRemoteError);
  }

  std::unique_ptr<Transport> transport;
  const uint32_t me;
  std::vector<std::byte> staging, landing_memory;
  std::vector<Flow> flows;  ///< by carrier
  std::map<LinkId, Status> downs;
  bool give_credits = true;
  bool silent = false;

 private:
  std::mt19937_64 random_;
};

class TransportContract : public testing::TestWithParam<TransportKind> {
 protected:
  void make(uint32_t count, uint64_t seed = 1) {
    for (uint32_t i = 0; i < count; ++i) {
      carriers.push_back(std::make_unique<Carrier>(GetParam().make(), i, count, seed));
    }
  }
  void open_all() {
    for (auto& a : carriers) {
      for (auto& b : carriers) {
        if (a != b) a->open(*b);
      }
    }
  }
  /// Lets all carriers work, waiting only for their descriptors, until `done`.
  void drive(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    for (auto& carrier : carriers) {
      if (carrier) carrier->pump();
    }
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "nothing happens any more";
      std::vector<pollfd> fds;
      for (auto& carrier : carriers) {
        if (carrier) fds.push_back({carrier->transport->event_fd(), POLLIN, 0});
      }
      poll(fds.data(), fds.size(), 1000);
      size_t at = 0;
      for (auto& carrier : carriers) {
        if (carrier && fds[at++].revents != 0) carrier->step();
      }
    }
  }
  /// Until nobody has anything to do.
  void settle() {
    drive([&] {
      return std::none_of(carriers.begin(), carriers.end(), [](const auto& carrier) {
        return carrier && (carrier->transport->busy() || readable(carrier->transport->event_fd()));
      });
    });
  }
  void exchange(uint32_t a, uint32_t b, uint64_t cells) {
    carriers[a]->flows[b].to_send += cells;
    carriers[b]->flows[a].to_send += cells;
    drive([&] { return carriers[a]->complete() && carriers[b]->complete(); });
  }

  std::vector<std::unique_ptr<Carrier>> carriers;
};

// One definition in each test program that includes this file.

TEST_P(TransportContract, NothingIsReadyBeforeTheFirstPostAndWhenIdle) {
  make(2);
  open_all();
  EXPECT_FALSE(readable(carriers[0]->transport->event_fd()));
  EXPECT_FALSE(carriers[0]->transport->progress(*carriers[0]));
  EXPECT_FALSE(carriers[0]->transport->busy());
  exchange(0, 1, 10);
  settle();
  for (auto& carrier : carriers) {
    EXPECT_FALSE(carrier->transport->busy());
    EXPECT_FALSE(carrier->transport->progress(*carrier));
    EXPECT_FALSE(readable(carrier->transport->event_fd()));
  }
}

TEST_P(TransportContract, APostMakesTheDescriptorReadable) {
  make(2);
  open_all();
  carriers[0]->flows[1].to_send = 1;
  carriers[0]->pump();
  EXPECT_TRUE(carriers[0]->transport->busy());
  EXPECT_TRUE(readable(carriers[0]->transport->event_fd()));
}

TEST_P(TransportContract, BothBeginAtTheSameTime) {
  make(2);
  open_all();
  exchange(0, 1, 1);
  EXPECT_EQ(carriers[0]->received() + carriers[1]->received(), 2U);
}

TEST_P(TransportContract, TheSameCarrierIsTheSameLink) {
  make(3);
  open_all();
  Transport& transport = *carriers[0]->transport;
  const LinkId first = carriers[0]->flows[1].link;
  EXPECT_NE(first, carriers[0]->flows[2].link);
  carriers[0]->open(*carriers[1]);
  EXPECT_EQ(carriers[0]->flows[1].link, first);
  transport.close(first);
  exchange(0, 1, 20);  // one reference is left
  EXPECT_TRUE(carriers[1]->downs.empty());
}

TEST_P(TransportContract, AStrangeAddressIsRefused) {
  make(1);
  Address address = carriers[0]->transport->address();
  EXPECT_EQ(carriers[0]->transport->open({}, "nobody").status().code(), Code::kInvalidArgument);
  address.pop_back();
  EXPECT_EQ(carriers[0]->transport->open(address, "x").status().code(), Code::kInvalidArgument);
  address[0] ^= std::byte{1};
  EXPECT_EQ(carriers[0]->transport->open(address, "x").status().code(), Code::kInvalidArgument);
}

TEST_P(TransportContract, CountsWhatItCarries) {
  make(2);
  open_all();
  exchange(0, 1, 50);
  settle();
  for (auto& carrier : carriers) {
    const Counters counters = carrier->transport->counters();
    EXPECT_EQ(counters.cells_sent, 50U);
    EXPECT_GE(counters.cell_bytes_sent, 50 * sizeof(Carrier::Head));
    EXPECT_EQ(counters.cells_received, 50U);
    EXPECT_EQ(counters.credits_sent, 50U);
    EXPECT_EQ(counters.credits_received, 50U);
    EXPECT_EQ(counters.cells_dropped, 0U);
  }
}

TEST_P(TransportContract, ALinkToOneself) {
  make(1);
  carriers[0]->open(*carriers[0]);
  carriers[0]->flows[0].to_send = 30;
  drive([&] { return carriers[0]->complete(); });
  carriers[0]->transport->close(carriers[0]->flows[0].link);
  settle();
  EXPECT_TRUE(carriers[0]->downs.empty());
}

TEST_P(TransportContract, CloseSendsWhatWasPostedAndIsNoErrorForThePeer) {
  make(2);
  open_all();
  carriers[0]->flows[1].to_send = kSlots;
  carriers[0]->pump();
  carriers[0]->transport->close(carriers[0]->flows[1].link);
  EXPECT_TRUE(carriers[0]->transport->busy());
  carriers[1]->give_credits = false;
  drive([&] { return carriers[1]->received() == kSlots; });
  settle();
  EXPECT_TRUE(carriers[1]->downs.empty());
  // The peer may then go altogether without being missed.
  carriers[0].reset();
  settle();
  EXPECT_TRUE(carriers[1]->downs.empty());
  carriers[1]->transport->close(carriers[1]->flows[0].link);
  settle();
}

TEST_P(TransportContract, AnOrderlyEndOfBothSidesIsSilent) {
  make(2);
  open_all();
  exchange(0, 1, 100);
  carriers[0]->transport->close(carriers[0]->flows[1].link);
  settle();
  EXPECT_TRUE(carriers[1]->downs.empty());
  carriers[1]->transport->close(carriers[1]->flows[0].link);
  settle();
  EXPECT_TRUE(carriers[0]->downs.empty());
  EXPECT_TRUE(carriers[1]->downs.empty());
}

TEST_P(TransportContract, TheLastCellsOfACarrierThatLeavesArrive) {
  make(2);
  open_all();
  exchange(0, 1, 5);
  carriers[1]->give_credits = false;
  carriers[0]->flows[1].to_send += kSlots;
  carriers[0]->pump();
  carriers[0]->transport->close(carriers[0]->flows[1].link);
  while (carriers[0]->transport->busy()) carriers[0]->transport->progress(*carriers[0]);
  carriers[0].reset();  // its end is seen before its cells are read
  drive([&] { return carriers[1]->received() == 5 + kSlots; });
  settle();
  EXPECT_TRUE(carriers[1]->downs.empty());
}

TEST_P(TransportContract, ACellForAPeerThatHasClosedEndsTheLink) {
  make(2);
  open_all();
  exchange(0, 1, 3);
  carriers[0]->transport->close(carriers[0]->flows[1].link);
  settle();
  carriers[1]->flows[0].to_send += 1;
  drive([&] { return !carriers[1]->downs.empty(); });
  EXPECT_TRUE(carriers[1]->downs.contains(carriers[1]->flows[0].link));
  EXPECT_TRUE(carriers[0]->downs.empty());
}

TEST_P(TransportContract, ReopenedLinksAreNewAndWorkThoughThePeerNeverClosed) {
  make(2);
  open_all();
  for (int round = 0; round < 5; ++round) {
    exchange(0, 1, 20);
    const LinkId before = carriers[0]->flows[1].link;
    carriers[0]->transport->close(before);
    if (round % 2 == 0) settle();
    carriers[0]->open(*carriers[1]);
    EXPECT_NE(carriers[0]->flows[1].link, before);
  }
  exchange(0, 1, 20);
  EXPECT_TRUE(carriers[0]->downs.empty());
  EXPECT_TRUE(carriers[1]->downs.empty());
}

TEST_P(TransportContract, APeerThatGoesWithoutAGoodbyeIsNamed) {
  make(3);
  open_all();
  carriers[0]->flows[1].to_send = carriers[1]->flows[0].to_send = 1'000'000;
  drive([&] { return carriers[0]->received() > 20 && carriers[1]->received() > 20; });
  carriers[1].reset();
  drive([&] { return !carriers[0]->downs.empty(); });
  carriers[0]->flows[1].to_send = carriers[0]->flows[1].sent;
  const auto down = carriers[0]->downs.find(carriers[0]->flows[1].link);
  ASSERT_NE(down, carriers[0]->downs.end());
  EXPECT_NE(down->second.message().find("carrier 1"), std::string::npos) << down->second.message();
  // Posts to it are dropped, others are not touched, and it can be closed.
  carriers[0]->transport->post_credit(down->first, 0);
  EXPECT_FALSE(carriers[0]->transport->busy());
  carriers[0]->flows[2].to_send = 10;
  drive([&] { return carriers[2]->received() == 10; });
  carriers[0]->transport->close(down->first);
  settle();
}

TEST_P(TransportContract, ManyLinks) {
  make(10);
  open_all();
  for (auto& a : carriers) {
    for (auto& b : carriers) {
      if (a != b) a->flows[b->me].to_send = 12;
    }
  }
  drive([&] {
    return std::all_of(carriers.begin(), carriers.end(),
                       [](const auto& carrier) { return carrier->complete(); });
  });
  for (auto& carrier : carriers) EXPECT_EQ(carrier->received(), 9U * 12U);
}

/// Each carrier in a thread of its own, as it is used: blocked in epoll, woken by a bell.
TEST_P(TransportContract, RandomTrafficAmongThreads) {
  const uint64_t seed = seed_of_run();
  constexpr uint32_t kCarriers = 4;
  make(kCarriers, seed);
  open_all();
  std::mt19937_64 random(seed);
  std::array<uint64_t, kCarriers> expected{};
  for (auto& a : carriers) {
    for (auto& b : carriers) {
      if (a == b || random() % 4 == 0) continue;
      a->flows[b->me].to_send = random() % 400;
      expected[b->me] += a->flows[b->me].to_send;
    }
  }
  std::atomic<uint32_t> finished{0};
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  const auto work = [&](Carrier& carrier) {
    UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
    for (const int fd : {carrier.transport->event_fd(), bell.get()}) {
      epoll_event event{};
      event.events = EPOLLIN;
      ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event), 0);
    }
    bool counted = false;
    carrier.pump();
    while (finished < kCarriers) {
      if (!counted && carrier.complete() && carrier.received() == expected[carrier.me] &&
          !carrier.transport->busy()) {
        counted = true;
        if (++finished == kCarriers) eventfd_write(bell.get(), 1);
        continue;
      }
      epoll_event event{};
      const auto patience = std::chrono::milliseconds(kPatience);
      ASSERT_GT(epoll_wait(epoll.get(), &event, 1, static_cast<int>(patience.count())), 0)
          << "nothing happens any more at carrier " << carrier.me;
      carrier.step();
    }
  };
  std::vector<std::thread> threads;
  for (auto& carrier : carriers) threads.emplace_back(work, std::ref(*carrier));
  for (auto& thread : threads) thread.join();
  for (auto& carrier : carriers) {
    EXPECT_EQ(carrier->received(), expected[carrier->me]);
    EXPECT_TRUE(carrier->downs.empty());
  }
}

}  // namespace railyard::transport
