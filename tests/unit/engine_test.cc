// SPDX-License-Identifier: Apache-2.0
//
// Engines of several ranks in one process, over real tcp carriers and the emulated driver: the
// whole data path below joining.
#include "exchange/engine.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/socket.h"
#include "device/driver.h"
#include "exchange/carrier.h"
#include "transport/tcp/tcp_transport.h"

namespace railyard::exchange {
namespace {

/// Ranks on nodes as given, one emulated GPU each, joined by hand.
class Cluster {
 public:
  Cluster(const std::vector<int>& node_of_rank, uint64_t pool_bytes)
      : driver_(*device::Driver::get().take()), ranks_(node_of_rank.size()) {
    std::vector<topology::Place> places;
    for (const int node : node_of_rank) {
      topology::Place place;
      place.host = "node" + std::to_string(node);
      places.push_back(place);
    }
    topology_ = topology::Topology::build(places).take();
    std::vector<Holding> holdings;
    std::vector<transport::Address> addresses;
    std::vector<std::string> names;
    for (size_t r = 0; r < ranks_; ++r) {
      add_gpu(static_cast<int>(r), pool_bytes);
      holdings.push_back(gpus_[r]->hold().take());
      addresses.push_back(gpus_[r]->transport().address());
      names.push_back("rank " + std::to_string(r));
    }
    const SlotPlan plan = SlotPlan::make(topology_, holdings).take();
    for (int node = 0; node < topology_.nodes(); ++node) {
      const device::ContextScope scope(driver_, contexts_[0]);
      segments_.push_back(device::Region::create(driver_, 0, device::MemoryKind::kHost,
                                                 segment_bytes(topology_, plan, node))
                              .take());
    }
    for (size_t r = 0; r < ranks_; ++r) {
      gpus_[r]->trim(holdings[r], plan, static_cast<int>(r));
    }
    for (int r = 0; r < static_cast<int>(ranks_); ++r) {
      EngineSetup setup{topology_, r, holdings, addresses, names, mates(r), segment(r)};
      Result<std::unique_ptr<Engine>> engine =
          Engine::create(*gpus_[static_cast<size_t>(r)], std::move(setup));
      EXPECT_TRUE(engine.ok()) << engine.status().message();
      engines_.push_back(engine.take());
    }
  }

  ~Cluster() {
    engines_.clear();
    for (size_t r = 0; r < ranks_; ++r) {
      const device::ContextScope scope(driver_, contexts_[r]);
      driver_.cuStreamDestroy(streams_[r]);
    }
    const device::ContextScope scope(driver_, contexts_[0]);
    segments_.clear();
    gpus_.clear();
  }

  Engine& engine(size_t rank) { return *engines_[rank]; }
  Status launch(size_t rank, const Exchange& exchange) {
    const CUstream streams[] = {streams_[rank]};
    return engines_[rank]->launch(exchange, streams);
  }
  /// A copy of the real table, to put other functions in.
  device::Driver& driver() { return driver_; }
  void synchronize(size_t rank) {
    const device::ContextScope scope(driver_, contexts_[rank]);
    EXPECT_EQ(driver_.cuStreamSynchronize(streams_[rank]), CUDA_SUCCESS);
  }
  /// To its mates, the process of `rank` ends.
  void lose(int rank) {
    for (auto& [watched, end] : lives_) {
      if (watched == rank) end.reset();
    }
  }
  /// One thread ends all ranks one after another, as single-process programs do.
  void farewell() {
    for (auto& engine : engines_) {
      const Status status = engine->farewell();
      EXPECT_TRUE(status.ok()) << status.message();
      engine.reset();
    }
  }

 private:
  void add_gpu(int ordinal, uint64_t pool_bytes) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    ASSERT_EQ(driver_.cuDeviceGet(&device, ordinal), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    const device::ContextScope scope(driver_, context);
    ASSERT_EQ(driver_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    contexts_.push_back(context);
    streams_.push_back(stream);
    transport::TcpOptions options;
    options.bind = net::SocketAddress::parse("127.0.0.1", 0).take();
    TransportChoice choice;
    choice.transport = transport::make_tcp(options).take();
    GpuOptions gpu_options;
    gpu_options.pool_bytes = pool_bytes;
    Result<std::unique_ptr<Gpu>> gpu =
        Gpu::create(driver_, context, std::move(choice), gpu_options);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    gpus_.push_back(gpu.take());
  }
  std::vector<Mate> mates(int rank) {
    std::vector<Mate> result;
    for (const int member : topology_.members(topology_.node_of(rank))) {
      Gpu& gpu = *gpus_[static_cast<size_t>(member)];
      Mate mate;
      mate.staging = gpu.staging();
      mate.landing = gpu.landing();
      mate.bell.reset(dup(gpu.carrier().bell()));
      int life[2];
      if (member != rank && socketpair(AF_UNIX, SOCK_STREAM, 0, life) == 0) {
        mate.life.reset(life[0]);
        lives_.emplace_back(member, life[1]);
      }
      result.push_back(std::move(mate));
    }
    return result;
  }
  std::shared_ptr<device::Region> segment(int rank) {
    return segments_[static_cast<size_t>(topology_.node_of(rank))];
  }

  device::Driver driver_;
  size_t ranks_;
  topology::Topology topology_;
  std::vector<CUcontext> contexts_;
  std::vector<CUstream> streams_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::vector<std::shared_ptr<device::Region>> segments_;
  std::vector<std::pair<int, UniqueFd>> lives_;  ///< rank, and the end its process would hold
  std::vector<std::unique_ptr<Engine>> engines_;
};

using Bytes = std::vector<unsigned char>;

Bytes pattern(size_t src, size_t dst, size_t message, size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<unsigned char>(src * 131 + dst * 31 + message * 7 + i * 13 + i / 251);
  }
  return data;
}

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

TEST(EngineFailureTest, ACapturedLaunchIsRefused) {
  Cluster cluster({0, 1}, 1 << 20);
  Bytes data = pattern(0, 0, 0, 100), other(100);
  Exchange exchange;
  exchange.sends.push_back({0, data.data(), 100});
  exchange.recvs.push_back({0, other.data(), 100});
  const auto ask = cluster.driver().cuStreamIsCapturing;
  cluster.driver().cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(cluster.launch(0, exchange).code(), Code::kInvalidUsage);
  cluster.driver().cuStreamIsCapturing = ask;
  EXPECT_TRUE(cluster.launch(0, exchange).ok()) << "the communicator is as good as before";
  cluster.synchronize(0);
  EXPECT_EQ(data, other);
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
