// SPDX-License-Identifier: Apache-2.0
//
// A joined communicator: what its children need to meet, and the engine if it was taken over.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "comm/manager.h"
#include "comm/meeting_point.h"
#include "exchange/engine.h"
#include "exchange/gpu.h"

namespace railyard::comm {

/// A meeting point at each rank's own server; only address and key count.
using Servers = std::vector<MeetingPoint>;

/// What stays the same for the life of a communicator.
struct Identity {
  int rank = 0, ranks = 0, nodes = 0;
  CUcontext context = nullptr;
  /// Names the communicator; where its children meet. Equal on all ranks.
  MeetingPoint point;
  /// By rank, where else they can meet if the process of rank 0 is gone. Null: not known.
  std::shared_ptr<const Servers> servers;
  /// Set while `point` has no address: the communicator was made before railyard was loaded.
  std::optional<HostPort> rendezvous;
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
  /// Its ranks did not come together at the rendezvous, so they are not going to wait for each
  /// other there again.
  void give_up() { given_up_ = true; }
  bool given_up() const { return given_up_; }

  /// Where the next split or growth meets. Every rank calls this once for each, in the same order.
  MeetingPoint next_child() { return identity_.point.child(splits_++); }
  /// What next_child() is going to return.
  MeetingPoint coming_child() const { return identity_.point.child(splits_); }
  /// Where those meet that are left without `excluded`, which is in rising order. They alone call
  /// it, once for each shrinking; others know nothing of it.
  MeetingPoint next_shrunk(const std::vector<int>& excluded);

 private:
  enum class Phase { kLive, kEnding, kGone };
  /// The first who comes ends the communicator.
  bool begin_end();
  void end();

  const Identity identity_;
  std::atomic<uint64_t> splits_{0};
  std::atomic<bool> given_up_{false};
  std::map<std::vector<int>, uint64_t> shrinks_;  ///< how often, by who was excluded; under mutex_
  exchange::Gpu* gpu_ = nullptr;
  std::mutex mutex_;  ///< guards phase_ and the end of engine_
  Phase phase_ = Phase::kLive;
  std::unique_ptr<exchange::Engine> engine_;
};

}  // namespace railyard::comm
