// SPDX-License-Identifier: Apache-2.0
//
// Engines of several ranks in one process, over real tcp carriers and the emulated driver.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/socket.h"
#include "device/driver.h"
#include "exchange/carrier.h"
#include "exchange/engine.h"
#include "transport/tcp/tcp_transport.h"

namespace railyard::exchange {

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

  /// Nothing of it may be running or kept once its GPUs are gone.
  ~Cluster() {
    for (auto& engine : engines_) {
      if (engine != nullptr) engine->discard();
    }
    for (size_t r = 0; r < ranks_; ++r) {
      synchronize(r);
      const device::ContextScope scope(driver_, contexts_[r]);
      driver_.cuStreamDestroy(streams_[r]);
    }
    engines_.clear();
    for (const auto& gpu : gpus_) Engine::tidy(*gpu);
    const device::ContextScope scope(driver_, contexts_[0]);
    segments_.clear();
    gpus_.clear();
  }

  Engine& engine(size_t rank) { return *engines_[rank]; }
  Status launch(size_t rank, const Exchange& exchange) {
    return launch(rank, exchange, {streams_[rank]});
  }
  Status launch(size_t rank, const Exchange& exchange, const std::vector<CUstream>& streams) {
    return engines_[rank]->launch(exchange, streams);
  }
  CUstream stream(size_t rank) const { return streams_[rank]; }
  CUcontext context(size_t rank) const { return contexts_[rank]; }
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
  /// The rank ends as after an abort.
  void drop(size_t rank) { engines_[rank].reset(); }
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

inline Bytes pattern(size_t src, size_t dst, size_t message, size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<unsigned char>(src * 131 + dst * 31 + message * 7 + i * 13 + i / 251);
  }
  return data;
}

}  // namespace railyard::exchange
