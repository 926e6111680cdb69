// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a job, as processes or as threads of one process, and how they meet apart from
// NCCL: to hand out unique ids, and to agree that something has happened.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nccl.h>

namespace conformance {

[[noreturn]] void fail(const std::string& what);

/// One rank's view. Thread-bound.
class World {
 public:
  World(int own_rank, int all_ranks, int own_device)
      : rank(own_rank), ranks(all_ranks), device(own_device) {}
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const int rank, ranks, device;

  /// What all ranks gave, by rank. All ranks must call it.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  void barrier() { gather({}); }
  /// Rank 0 makes the ids, the others get them; empty if the call failed there.
  std::vector<ncclUniqueId> unique_ids(size_t count);
};

/// A process started by a launcher, from RANK, WORLD_SIZE, LOCAL_RANK and MASTER_*.
std::unique_ptr<World> make_process_world();

/// Where ranks meet that are threads of one process.
class ThreadMeeting {
 public:
  explicit ThreadMeeting(int ranks) : given_(static_cast<size_t>(ranks)) {}
  std::vector<std::string> gather(int rank, const std::string& mine);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> given_, complete_;
  size_t here_ = 0;
  int round_ = 0;
};

/// A thread of this process; the rank's device is its number.
std::unique_ptr<World> make_thread_world(int rank, int ranks, ThreadMeeting& meeting);

}  // namespace conformance
