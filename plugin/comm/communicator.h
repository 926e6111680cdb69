// SPDX-License-Identifier: Apache-2.0
//
// A joined communicator: what its children need to meet, and the engine if it was taken over.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "comm/manager.h"
#include "comm/meeting_point.h"
#include "exchange/engine.h"
#include "exchange/gpu.h"

namespace railyard::comm {

/// What stays the same for the life of a communicator.
struct Identity {
  int rank = 0, ranks = 0, nodes = 0;
  CUcontext context = nullptr;
  /// Names the communicator; where its children meet. Equal on all ranks.
  MeetingPoint point;
  std::string stats_file;  ///< template; empty: none
};

/// Thread-safe, with one exception: after destroy() nobody may use engine() any more.
class JoinedCommunicator final : public Communicator {
 public:
  /// Not taken over.
  explicit JoinedCommunicator(Identity identity) : identity_(std::move(identity)) {}
  /// Taken over. The GPU outlives the communicator.
  JoinedCommunicator(Identity identity, exchange::Gpu& gpu,
                     std::unique_ptr<exchange::Engine> engine);
  /// Waits for nobody if it was not ended before.
  ~JoinedCommunicator() override;

  int rank() const override { return identity_.rank; }
  int ranks() const override { return identity_.ranks; }
  uint64_t order() const override;
  exchange::Engine* engine() override { return engine_.get(); }
  void destroy() override;
  void stop() override;

  const Identity& identity() const { return identity_; }
  /// Where the next split meets. Every rank calls this once per split, in the same order.
  MeetingPoint next_child() { return identity_.point.child(splits_++); }

 private:
  enum class Phase { kLive, kEnding, kGone };
  /// The first who comes ends the communicator.
  bool begin_end();
  void end();

  const Identity identity_;
  std::atomic<uint64_t> splits_{0};
  exchange::Gpu* gpu_ = nullptr;
  std::mutex mutex_;  ///< guards phase_ and the end of engine_
  Phase phase_ = Phase::kLive;
  std::unique_ptr<exchange::Engine> engine_;
};

}  // namespace railyard::comm
