// SPDX-License-Identifier: Apache-2.0
//
// The data path of one communicator at one rank: tables for the kernel, the carrier's half, and
// launches.
//
//   setup known by all ranks --> Engine::create --> launch() … launch() --> farewell() --> gone
//
// Thread rules: launch() and farewell() by one thread at a time, as NCCL demands of callers;
// abort(), error() and statistics() are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "device/memory.h"
#include "exchange/gpu.h"
#include "exchange/message.h"
#include "exchange/slots.h"
#include "kernels/layout.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace railyard::exchange {

/// One rank of this node as this process reaches it. For the rank itself: its own memory.
struct Mate {
  std::shared_ptr<device::Region> staging, landing;
  UniqueFd bell;  ///< eventfd of its carrier (a duplicate)
  /// Ends (EOF, hang-up) when the mate's process does; invalid for the rank itself and for mates
  /// whose death another member watches.
  UniqueFd life;
};

struct EngineSetup {
  topology::Topology topology;
  int rank = 0;
  std::vector<Holding> holdings;              ///< by rank
  std::vector<transport::Address> addresses;  ///< by rank, of each rank's transport
  std::vector<std::string> names;             ///< by rank, for messages: "rank 5 on node b"
  std::vector<Mate> mates;                    ///< by local index
  std::shared_ptr<device::Region> segment;    ///< node segment, segment_bytes() long, zeroed by its
                                              ///< maker (local index 0) before others map it
};

struct Statistics {
  kernels::Traffic traffic;
  uint64_t exchanges = 0;
};

/// Size of a communicator's node segment. Equal on all ranks of the node.
uint64_t segment_bytes(const topology::Topology& topology, const SlotPlan& plan, int node);

class Channel;

class Engine {
 public:
  /// After this returns on every rank, messages may flow. Needs the context current.
  static Result<std::unique_ptr<Engine>> create(Gpu& gpu, EngineSetup setup);
  /// Frees what engines of this GPU have left that have ended, as far as nobody needs it any more.
  /// Call it before a new one sets memory aside.
  static void tidy(const Gpu& gpu);
  /// Call after farewell(), abort() or discard(). Waits for nobody: what other ranks of the node
  /// still need goes on serving them, and is freed by tidy() or when a later engine of the GPU
  /// ends.
  ~Engine();

  /// Starts an exchange on `streams.front()`; the kernel also waits for what is already on the
  /// others, and they for it. Fails without having started anything: with error() if the
  /// communicator is broken, kInvalidUsage if messages to oneself do not pair up or the streams
  /// are not all captured into the same graph or none. Streams that are captured take the exchange
  /// into their graph, to be started with each launch of it. Exchanges of one communicator follow
  /// one another, launched or replayed, on whichever streams they are.
  Status launch(const Exchange& exchange, std::span<const CUstream> streams);

  /// Around work that others launch and that is to be in the order of the exchanges, as NCCL's
  /// collectives are: what comes next on `streams.front()` follows the exchanges so far and what is
  /// on the other streams; later exchanges, and what comes later on the other streams, follow it.
  /// Inside a graph only after an exchange in the same one.
  Status begin_outside(std::span<const CUstream> streams);
  Status end_outside(std::span<const CUstream> streams);

  /// Whether launch() would accept these streams together: ok or kInvalidUsage.
  Status check_streams(std::span<const CUstream> streams) const;

  /// Whether kernels of the communicator's GPU may use the memory.
  bool may_use(const void* memory) const;

  /// The first thing that went wrong on this communicator, ok while nothing has.
  Status error() const;
  /// Ends waiting kernels at once and drops what is under way. Idempotent.
  void abort();
  /// abort() for an engine that no rank is ever going to use.
  void discard();
  /// Waits until graphs with exchanges of this communicator are gone, as NCCL does, all own
  /// exchanges are over, their cells pulled, and all ranks of the node have
  /// said farewell too (ranks of this very process excepted as long as they have not been asked:
  /// the last of them waits for all). Returns early, with the error, on a broken communicator.
  Status farewell();

  Statistics statistics() const;
  const SlotPlan& plan() const;

  struct State;

 private:
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace railyard::exchange
