// SPDX-License-Identifier: Apache-2.0
//
// How a rank joins: it meets the others, all decide alike, and if the communicator is to be taken
// over each sets up its part; the last round confirms that every rank succeeded.
//
//   round 0   Introductions  -> topology, decision          (nothing has been allocated so far)
//   round 1   Offers         -> slot plan, node set-up, engine
//   round 2   verdicts       -> taken over only if all succeeded
//
// For a split all ranks of the parent meet. Each colour is decided by itself; ranks of colours that
// are not taken over sit the later rounds out.
//
// Everything here may block for as long as RAILYARD_JOIN_S allows, and runs in a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/config.h"
#include "comm/communicator.h"
#include "comm/process.h"

namespace railyard::comm {

struct JoinRequest {
  Process& process;
  CUcontext context = nullptr;  ///< null: this rank has none and says so
  MeetingPoint point;
  int rank = 0, ranks = 0;  ///< at the meeting
  /// Where `point` is if it has no address yet; rank 0 opens the meeting there.
  std::optional<HostPort> rendezvous;
  std::function<void()> nobody_met = {};  ///< called if the ranks do not come together at all
};

/// Null: nothing is known of the communicator, it stays with NCCL.
std::shared_ptr<JoinedCommunicator> join(const JoinRequest& request);

/// `color` negative: this rank will be in no child. Null as for join(), and for such ranks.
std::shared_ptr<JoinedCommunicator> join_split(const JoinRequest& request, int color, int key);

}  // namespace railyard::comm
