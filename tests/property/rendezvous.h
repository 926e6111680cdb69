// SPDX-License-Identifier: Apache-2.0
//
// Hands unique ids from rank 0 to the others: over MASTER_ADDR:MASTER_PORT between processes,
// through memory between threads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include <nccl.h>

namespace property {

/// The ids that rank 0 passes in `ids` (others: right size, contents ignored) reach all ranks.
void share_between_processes(int rank, int ranks, std::vector<ncclUniqueId>& ids);

class ThreadRendezvous {
 public:
  void share(int rank, std::vector<ncclUniqueId>& ids);

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<ncclUniqueId> ids_;
  bool set_ = false;
};

}  // namespace property
