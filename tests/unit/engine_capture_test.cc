// SPDX-License-Identifier: Apache-2.0
//
// Exchanges that are captured into CUDA graphs and replayed.
#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "engine_cluster.h"

namespace railyard::exchange {
namespace {

#define ASSERT_OK(expression)                                 \
  do {                                                        \
    const Status status_of_it = (expression);                 \
    ASSERT_TRUE(status_of_it.ok()) << status_of_it.message(); \
  } while (false)

/// Returns once the driver has called the destructors that were due. They are called in order.
void wait_for_destructors() {
  std::promise<void> called;
  CUuserObject last = nullptr;
  const auto call = [](void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); };
  ASSERT_EQ(cuUserObjectCreate(&last, &called, call, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  ASSERT_EQ(cuUserObjectRelease(last, 1), CUDA_SUCCESS);
  called.get_future().wait();
}

/// A graph that can be launched. Engines know that it has gone when it has: what they still hold
/// must not outlive the cluster.
class Graph {
 public:
  /// What `work()` does to `stream`.
  template <typename F>
  Graph(const Cluster& cluster, size_t rank, CUstream stream, F work)
      : driver_(*device::Driver::get().take()), context_(cluster.context(rank)) {
    const device::ContextScope scope(driver_, context_);
    EXPECT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    work();
    EXPECT_EQ(cuStreamEndCapture(stream, &graph_), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
  }
  ~Graph() {
    const device::ContextScope scope(driver_, context_);
    EXPECT_EQ(cuGraphExecDestroy(exec_), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph_), CUDA_SUCCESS);
    wait_for_destructors();
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(CUstream stream) const {
    const device::ContextScope scope(driver_, context_);
    EXPECT_EQ(cuGraphLaunch(exec_, stream), CUDA_SUCCESS);
  }

 private:
  const device::Driver& driver_;
  CUcontext context_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

/// A further stream of a rank.
class Stream {
 public:
  Stream(const Cluster& cluster, size_t rank)
      : driver_(*device::Driver::get().take()), context_(cluster.context(rank)) {
    const device::ContextScope scope(driver_, context_);
    EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~Stream() {
    const device::ContextScope scope(driver_, context_);
    EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return stream_; }  // NOLINT: stands for it
  void synchronize() const {
    const device::ContextScope scope(driver_, context_);
    EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }

 private:
  const device::Driver& driver_;
  CUcontext context_;
  CUstream stream_ = nullptr;
};

/// Buffers of one message from everyone to everyone.
class AllToAll {
 public:
  AllToAll(size_t ranks, size_t bytes) : ranks_(ranks) {
    sent_.resize(ranks * ranks, Bytes(bytes));
    received_.resize(ranks * ranks, Bytes(bytes));
  }
  void fill(size_t round) {
    for (size_t i = 0; i < sent_.size(); ++i) {
      const Bytes fresh = pattern(i / ranks_, i % ranks_, round, sent_[i].size());
      std::copy(fresh.begin(), fresh.end(), sent_[i].begin());
      std::fill(received_[i].begin(), received_[i].end(), static_cast<unsigned char>(0));
    }
  }
  bool arrived() const { return sent_ == received_; }
  Exchange of(size_t rank) {
    Exchange exchange;
    for (size_t peer = 0; peer < ranks_; ++peer) {
      Bytes& out = sent_[rank * ranks_ + peer];
      Bytes& in = received_[peer * ranks_ + rank];
      exchange.sends.push_back({static_cast<int>(peer), out.data(), out.size()});
      exchange.recvs.push_back({static_cast<int>(peer), in.data(), in.size()});
    }
    return exchange;
  }

 private:
  size_t ranks_;
  std::vector<Bytes> sent_, received_;  ///< [src * ranks + dst]
};

const std::vector<int> kNodes = {0, 0, 1, 1};

TEST(EngineCaptureTest, ReplaysAreExchangesLikeAllOthers) {
  Cluster cluster(kNodes, 1 << 20);
  AllToAll data(4, 100'000);
  std::vector<std::unique_ptr<Graph>> graphs;
  for (size_t r = 0; r < 4; ++r) {
    graphs.push_back(std::make_unique<Graph>(cluster, r, cluster.stream(r),
                                             [&] { ASSERT_OK(cluster.launch(r, data.of(r))); }));
    EXPECT_EQ(cluster.engine(r).statistics().exchanges, 0U) << "capturing starts nothing";
  }
  for (size_t round = 0; round < 20; ++round) {
    data.fill(round);
    for (size_t r = 0; r < 4; ++r) graphs[r]->launch(cluster.stream(r));
    for (size_t r = 0; r < 4; ++r) cluster.synchronize(r);
    ASSERT_TRUE(data.arrived()) << "round " << round;
  }
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(cluster.engine(r).statistics().exchanges, 20U);
    EXPECT_EQ(cluster.engine(r).statistics().traffic.phase1_messages, 40U);
  }
  graphs.clear();
  cluster.farewell();
}

TEST(EngineCaptureTest, CapturedHereEagerThere) {
  Cluster cluster(kNodes, 1 << 20);
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  AllToAll data(4, 20'000);
  std::vector<std::unique_ptr<Graph>> graphs;
  for (size_t r = 0; r < 4; ++r) {
    graphs.push_back(std::make_unique<Graph>(cluster, r, cluster.stream(r),
                                             [&] { ASSERT_OK(cluster.launch(r, data.of(r))); }));
  }
  for (size_t round = 0; round < 60; ++round) {
    data.fill(round);
    for (size_t r = 0; r < 4; ++r) {
      if (random() % 2 == 0) {
        graphs[r]->launch(cluster.stream(r));
      } else {
        ASSERT_OK(cluster.launch(r, data.of(r)));
      }
    }
    for (size_t r = 0; r < 4; ++r) cluster.synchronize(r);
    ASSERT_TRUE(data.arrived()) << "round " << round;
  }
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(cluster.engine(r).statistics().exchanges, 60U);
  graphs.clear();
  cluster.farewell();
}

TEST(EngineCaptureTest, ExchangesFollowOneAnotherOnWhicheverStreams) {
  Cluster cluster({0, 1}, 1 << 20);
  const Stream other(cluster, 0);
  // Cells of both kinds of exchange would be mixed up if two ran at a time.
  std::vector<Bytes> sent, received;
  for (size_t m = 0; m < 40; ++m) {
    sent.push_back(pattern(0, 1, m / 2 * 2 == m ? 0 : m, 50'000));
    received.emplace_back(50'000);
  }
  Exchange first;
  first.sends.push_back({1, sent[0].data(), sent[0].size()});
  std::optional<Graph> graph;
  graph.emplace(cluster, 0, other, [&] { ASSERT_OK(cluster.launch(0, first, {other})); });
  for (size_t m = 0; m < 40; ++m) {
    if (m % 2 == 0) {
      graph->launch(other);
    } else {
      Exchange eager;
      eager.sends.push_back({1, sent[m].data(), sent[m].size()});
      ASSERT_OK(cluster.launch(0, eager));
    }
  }
  for (size_t m = 0; m < 40; ++m) {
    Exchange exchange;
    exchange.recvs.push_back({0, received[m].data(), received[m].size()});
    ASSERT_OK(cluster.launch(1, exchange));
  }
  cluster.synchronize(1);
  cluster.synchronize(0);
  other.synchronize();
  for (size_t m = 0; m < 40; ++m) ASSERT_EQ(sent[m], received[m]) << "message " << m;
  graph.reset();
  cluster.farewell();
}

TEST(EngineCaptureTest, SeveralExchangesAndStreamsInOneGraph) {
  Cluster cluster(kNodes, 1 << 20);
  AllToAll first(4, 3000), second(4, 70'000);
  const Stream side(cluster, 0);
  const device::Driver& driver = cluster.driver();
  CUevent fork = nullptr;
  {
    const device::ContextScope scope(driver, cluster.context(0));
    ASSERT_EQ(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  std::optional<Graph> graph;
  graph.emplace(cluster, 0, cluster.stream(0), [&] {
    ASSERT_EQ(cuEventRecord(fork, cluster.stream(0)), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    ASSERT_OK(cluster.launch(0, first.of(0), {side}));
    // Joins the side stream again.
    ASSERT_OK(cluster.launch(0, second.of(0), {side, cluster.stream(0)}));
  });
  for (size_t round = 0; round < 10; ++round) {
    first.fill(2 * round);
    second.fill(2 * round + 1);
    graph->launch(cluster.stream(0));
    for (size_t r = 1; r < 4; ++r) {
      ASSERT_OK(cluster.launch(r, first.of(r)));
      ASSERT_OK(cluster.launch(r, second.of(r)));
    }
    for (size_t r = 0; r < 4; ++r) cluster.synchronize(r);
    ASSERT_TRUE(first.arrived() && second.arrived()) << "round " << round;
  }
  graph.reset();
  cluster.farewell();
  const device::ContextScope scope(driver, cluster.context(0));
  cuEventDestroy(fork);
}

TEST(EngineCaptureTest, OutsideWorkFollowsTheExchangeBeforeItInItsGraph) {
  Cluster cluster({0, 1}, 1 << 20);
  const Stream side(cluster, 0);
  Bytes sent(100'000), received(100'000);
  Exchange in, out;
  in.recvs.push_back({1, received.data(), received.size()});
  out.sends.push_back({0, sent.data(), sent.size()});
  struct Look {
    const Bytes &sent, &received;
    int right = 0;
  } look{sent, received};
  const auto see = [](void* object) {
    auto& l = *static_cast<Look*>(object);
    if (l.sent == l.received) ++l.right;
  };
  CUevent fork = nullptr;
  {
    const device::ContextScope scope(cluster.driver(), cluster.context(0));
    ASSERT_EQ(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  std::optional<Graph> graph;
  graph.emplace(cluster, 0, cluster.stream(0), [&] {
    const std::vector<CUstream> own = {cluster.stream(0)};
    ASSERT_OK(cluster.engine(0).begin_outside(own));  // nothing to follow
    ASSERT_OK(cluster.engine(0).end_outside(own));
    ASSERT_EQ(cuEventRecord(fork, cluster.stream(0)), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    ASSERT_OK(cluster.launch(0, in, {side}));
    ASSERT_OK(cluster.engine(0).begin_outside(own));  // also joins the side stream
    ASSERT_EQ(cuLaunchHostFunc(cluster.stream(0), see, &look), CUDA_SUCCESS);
    ASSERT_OK(cluster.engine(0).end_outside(own));
  });
  for (int round = 1; round <= 5; ++round) {
    sent = pattern(1, 0, static_cast<size_t>(round), sent.size());
    out.sends[0].buffer = sent.data();
    graph->launch(cluster.stream(0));
    ASSERT_OK(cluster.launch(1, out));
    cluster.synchronize(0);
    cluster.synchronize(1);
    EXPECT_EQ(look.right, round);
  }
  graph.reset();
  cluster.farewell();
  const device::ContextScope scope(cluster.driver(), cluster.context(0));
  cuEventDestroy(fork);
}

TEST(EngineCaptureTest, OutsideWorkKeepsItsPlaceAmongExchanges) {
  Cluster cluster({0, 1}, 1 << 20);
  const Stream other(cluster, 0);
  Bytes sent = pattern(1, 0, 1, 100'000), received(100'000), copy(100'000), back(100'000);
  Exchange in, out, onward, home;
  in.recvs.push_back({1, received.data(), received.size()});
  out.sends.push_back({0, sent.data(), sent.size()});
  onward.sends.push_back({1, copy.data(), copy.size()});
  home.recvs.push_back({0, back.data(), back.size()});
  struct Copy {
    Bytes &from, &to;
  } work{received, copy};
  const auto run = [](void* object) {
    auto& c = *static_cast<Copy*>(object);
    std::copy(c.from.begin(), c.from.end(), c.to.begin());
  };
  const std::vector<CUstream> outside = {other};
  ASSERT_OK(cluster.launch(0, in));
  ASSERT_OK(cluster.engine(0).begin_outside(outside));
  {
    const device::ContextScope scope(cluster.driver(), cluster.context(0));
    ASSERT_EQ(cuLaunchHostFunc(other, run, &work), CUDA_SUCCESS);
  }
  ASSERT_OK(cluster.engine(0).end_outside(outside));
  ASSERT_OK(cluster.launch(0, onward));
  ASSERT_OK(cluster.launch(1, out));  // only now can any of it begin
  ASSERT_OK(cluster.launch(1, home));
  cluster.synchronize(0);
  cluster.synchronize(1);
  EXPECT_EQ(back, sent);
  cluster.farewell();
}

TEST(EngineCaptureTest, DescriptorsLiveAsLongAsTheirGraph) {
  Cluster cluster({0, 1}, 1 << 20);
  Bytes data = pattern(0, 0, 0, 100), other(100);
  Exchange exchange;
  exchange.sends.push_back({0, data.data(), 100});
  exchange.recvs.push_back({0, other.data(), 100});
  Bytes scratch(100);
  Exchange eager = exchange;
  eager.recvs[0].buffer = scratch.data();
  for (int round = 0; round < 10; ++round) {
    std::fill(other.begin(), other.end(), static_cast<unsigned char>(0));
    const Graph graph(cluster, 0, cluster.stream(0),
                      [&] { ASSERT_OK(cluster.launch(0, exchange)); });
    // Enough to come round to every descriptor there is.
    for (int i = 0; i < 20; ++i) ASSERT_OK(cluster.launch(0, eager));
    cluster.synchronize(0);
    ASSERT_NE(data, other);
    graph.launch(cluster.stream(0));
    cluster.synchronize(0);
    ASSERT_EQ(data, other);
  }
}

TEST(EngineCaptureTest, FarewellWaitsForGraphs) {
  Cluster cluster({0, 1}, 1 << 20);
  AllToAll data(2, 100);
  std::optional<Graph> graph;
  graph.emplace(cluster, 0, cluster.stream(0), [&] { ASSERT_OK(cluster.launch(0, data.of(0))); });
  std::atomic<bool> gone{false};
  std::thread end([&] {
    cluster.farewell();
    EXPECT_TRUE(gone);
  });
  data.fill(1);
  graph->launch(cluster.stream(0));
  ASSERT_OK(cluster.launch(1, data.of(1)));
  cluster.synchronize(0);
  cluster.synchronize(1);
  EXPECT_TRUE(data.arrived());
  gone = true;
  graph.reset();
  end.join();
}

TEST(EngineCaptureTest, AbortWaitsForNoGraphAndEndsReplays) {
  Cluster cluster({0, 1}, 1 << 20);
  AllToAll data(2, 100);
  std::optional<Graph> graph;
  graph.emplace(cluster, 0, cluster.stream(0), [&] { ASSERT_OK(cluster.launch(0, data.of(0))); });
  graph->launch(cluster.stream(0));  // rank 1 never comes
  std::thread end([&] { static_cast<void>(cluster.engine(0).farewell()); });
  cluster.engine(0).abort();
  end.join();
  cluster.synchronize(0);
  cluster.drop(0);
  graph->launch(cluster.stream(0));
  cluster.synchronize(0);
  graph.reset();
}

TEST(EngineCaptureTest, StreamsMustAgree) {
  Cluster cluster({0, 1}, 1 << 20);
  const Stream first(cluster, 0), second(cluster, 0);
  AllToAll data(2, 100);
  const Graph graph(cluster, 0, first, [&] {
    const std::vector<CUstream> mixed = {first, cluster.stream(0)};
    EXPECT_EQ(cluster.engine(0).check_streams(mixed).code(), Code::kInvalidUsage);
    EXPECT_EQ(cluster.launch(0, data.of(0), mixed).code(), Code::kInvalidUsage);
    const Graph inner(cluster, 0, second, [&] {
      EXPECT_EQ(cluster.launch(0, data.of(0), {first, second}).code(), Code::kInvalidUsage);
    });
    EXPECT_TRUE(cluster.engine(0).check_streams(std::vector<CUstream>{first}).ok());
  });
  data.fill(3);
  for (size_t r = 0; r < 2; ++r) ASSERT_OK(cluster.launch(r, data.of(r)));
  for (size_t r = 0; r < 2; ++r) cluster.synchronize(r);
  EXPECT_TRUE(data.arrived()) << "the communicator is as good as before";
}

TEST(EngineCaptureTest, AFailedCaptureLeavesTheCommunicatorWhole) {
  Cluster cluster({0, 1}, 1 << 20);
  AllToAll data(2, 100);
  device::Driver& driver = cluster.driver();
  const device::Driver real = driver;
  driver.cuUserObjectCreate = [](CUuserObject*, void*, CUhostFn, unsigned, unsigned) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  {
    const Graph graph(cluster, 0, cluster.stream(0),
                      [&] { EXPECT_EQ(cluster.launch(0, data.of(0)).code(), Code::kDeviceError); });
  }
  driver = real;
  driver.cuGraphRetainUserObject = [](CUgraph, CUuserObject, unsigned, unsigned) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  {
    const Graph graph(cluster, 0, cluster.stream(0),
                      [&] { EXPECT_EQ(cluster.launch(0, data.of(0)).code(), Code::kDeviceError); });
  }
  driver = real;
  driver.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void**,
                             void**) { return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; };
  {
    const Graph graph(cluster, 0, cluster.stream(0),
                      [&] { EXPECT_EQ(cluster.launch(0, data.of(0)).code(), Code::kDeviceError); });
    graph.launch(cluster.stream(0));  // half an exchange is none
    cluster.synchronize(0);
  }
  driver = real;
  data.fill(3);
  for (size_t r = 0; r < 2; ++r) ASSERT_OK(cluster.launch(r, data.of(r)));
  for (size_t r = 0; r < 2; ++r) cluster.synchronize(r);
  EXPECT_TRUE(data.arrived());
  cluster.farewell();
}

TEST(EngineCaptureTest, SetUpLaunchAndEndDoNotSpoilACapture) {
  Cluster outer({0, 1}, 1 << 20);
  AllToAll captured(2, 100);
  std::optional<Graph> graph;
  // Captured in global mode: unsafe calls of any thread would spoil it.
  graph.emplace(outer, 0, outer.stream(0), [&] {
    std::thread([] {
      Cluster cluster({0, 0, 1, 1}, 1 << 20);
      AllToAll data(4, 10'000);
      data.fill(1);
      for (size_t r = 0; r < 4; ++r) ASSERT_OK(cluster.launch(r, data.of(r)));
      for (size_t r = 0; r < 4; ++r) cluster.synchronize(r);
      EXPECT_TRUE(data.arrived());
      cluster.farewell();
    }).join();
    ASSERT_OK(outer.launch(0, captured.of(0)));
  });
  captured.fill(2);
  graph->launch(outer.stream(0));
  ASSERT_OK(outer.launch(1, captured.of(1)));
  for (size_t r = 0; r < 2; ++r) outer.synchronize(r);
  EXPECT_TRUE(captured.arrived());
  graph.reset();
  outer.farewell();
}

}  // namespace
}  // namespace railyard::exchange
