// SPDX-License-Identifier: Apache-2.0
//
// Communicators whose creation railyard did not see, because it was loaded in the midst of it: what
// is known of them is what NCCL tells the plugin that it loads then. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include <nccl.h>

namespace railyard::intercept {

struct Runtime;

class Strangers {
 public:
  /// Of this process; never destroyed.
  static Strangers& instance();

  /// A communicator of `ranks` ranks with this hash is being created.
  void note(uint64_t hash, int ranks);
  /// From here on creations are seen, so nothing new is a stranger.
  void close() { closed_.store(true, std::memory_order_relaxed); }

  /// Makes `comm` known to the manager, so that its children can be joined, if it is a stranger and
  /// there is just one it can be. Several handles may be the same one: ranks of one process.
  void adopt(Runtime& runtime, ncclComm_t comm);
  /// An unknown communicator ends.
  void forget(Runtime& runtime, ncclComm_t comm);

 private:
  std::atomic<bool> closed_{false}, any_{false};
  std::mutex mutex_;                          ///< guards hashes_
  std::map<int, std::set<uint64_t>> hashes_;  ///< by number of ranks
};

/// For the plugin entries that NCCL loads.
inline void note_hash(uint64_t hash, int ranks) { Strangers::instance().note(hash, ranks); }

}  // namespace railyard::intercept
