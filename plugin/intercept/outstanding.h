// SPDX-License-Identifier: Apache-2.0
//
// What waits for NCCL to finish something, process-wide: creations and groups of non-blocking
// communicators, and joins whose communicator NCCL failed to make.
//
// Non-blocking calls return ncclInProgress; programs then poll ncclCommGetAsyncError, and that is
// when the rest is done here. Nothing here blocks. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <nccl.h>

#include "comm/manager.h"
#include "intercept/batch.h"

namespace railyard::intercept {

struct Runtime;

/// A communicator being made.
struct Creation {
  std::shared_ptr<comm::Joining> joining;  ///< null: stays with NCCL
  ncclComm_t* target = nullptr;            ///< where NCCL puts the handle, at the latest when done
  ncclComm_t parent = nullptr;             ///< where NCCL reports progress, if not at the new one
  ncclComm_t handle = nullptr;             ///< copy of *target for what outlives the call
  bool blocking = true;                    ///< as the new communicator is configured
  bool may_wait = true;                    ///< the call is a blocking one
};

/// Messages that wait for NCCL's part of their group.
struct Parked {
  std::vector<Batch> batches;
  std::vector<ncclComm_t> communicators;  ///< all of the group
};

class Outstanding {
 public:
  /// Ends a creation for which NCCL returned `result`: binds what the join yields, or gives the
  /// join up. What a non-blocking creation would have to wait for is kept for later. Returns what
  /// to tell the caller.
  ncclResult_t settle(Runtime& runtime, Creation creation, ncclResult_t result);
  /// Keeps messages that must not start before NCCL's part of their group, in which it also has
  /// calls on `others`.
  void park(std::vector<Batch> batches, std::vector<ncclComm_t> others);

  /// Whether anything is waiting for this communicator.
  bool busy(ncclComm_t handle);
  /// NCCL reports `state` for the communicator: does what waited for it. Returns what to report.
  ncclResult_t advance(Runtime& runtime, ncclComm_t handle, ncclResult_t state);
  /// The communicator is being ended: drops what waits for it.
  void forget(ncclComm_t handle);

 private:
  ncclResult_t advance_creations(Runtime& runtime, ncclComm_t handle, ncclResult_t state);
  ncclResult_t advance_parked(Runtime& runtime, ncclComm_t handle, ncclResult_t state);
  void abandon(std::shared_ptr<comm::Joining> joining);

  std::atomic<size_t> waiting_{0};  ///< entries of the first two lists, to skip the lock
  std::mutex mutex_;                ///< guards the lists
  std::vector<Creation> creations_;
  std::vector<Parked> parked_;
  std::vector<std::shared_ptr<comm::Joining>> abandoned_;
};

}  // namespace railyard::intercept
