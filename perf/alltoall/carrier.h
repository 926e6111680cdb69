// SPDX-License-Identifier: Apache-2.0
//
// Who carried the messages between nodes, from the counters that railyard (RAILYARD_STATS) and the
// emulated NCCL (EMULATOR_NCCL_STATS) write when a communicator ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace alltoall {

class Counters {
 public:
  /// Asks for the counters of this process, in files of its own unless the user has named some.
  /// Call it before the first call of NCCL.
  Counters();
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  struct Bytes {
    std::optional<uint64_t> railyard, nccl;  ///< sent to other nodes; nullopt: nobody counted
    /// "railyard", "nccl", "both", "none" (nothing was sent), "unknown".
    std::string carrier() const;
  };
  /// Of these ranks, once their communicators have ended.
  Bytes read(const std::vector<int>& ranks) const;

 private:
  struct File {
    std::string path;
    bool own = false;
    uint64_t begin = 0;  ///< what is before that was there before
  };
  static File ask(const char* variable, const char* suffix);

  File railyard_, nccl_;
};

}  // namespace alltoall
