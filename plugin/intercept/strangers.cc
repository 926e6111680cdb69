// SPDX-License-Identifier: Apache-2.0
#include "intercept/strangers.h"

#include "base/log.h"
#include "intercept/runtime.h"

namespace railyard::intercept {

Strangers& Strangers::instance() {
  static Strangers* const strangers = new Strangers;
  return *strangers;
}

void Strangers::note(uint64_t hash, int ranks) {
  if (closed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  hashes_[ranks].insert(hash);
  any_.store(true, std::memory_order_release);
}

void Strangers::adopt(Runtime& runtime, ncclComm_t comm) {
  if (!any_.load(std::memory_order_acquire) || comm == nullptr) return;
  if (runtime.manager.find(comm) != nullptr) return;
  comm::Manager::Stranger stranger;
  const NcclLibrary& nccl = runtime.nccl;
  if (forward(nccl.ncclCommCount, comm, &stranger.ranks) != ncclSuccess ||
      forward(nccl.ncclCommUserRank, comm, &stranger.rank) != ncclSuccess ||
      forward(nccl.ncclCommCuDevice, comm, &stranger.device) != ncclSuccess) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const auto found = hashes_.find(stranger.ranks);
    if (found == hashes_.end()) return;
    if (found->second.size() != 1) {
      log::info(
          "children of a communicator of %d ranks stay with NCCL: several of that size were made "
          "before railyard was loaded",
          stranger.ranks);
      return;
    }
    stranger.hash = *found->second.begin();
  }
  runtime.manager.adopt(comm, stranger);
}

void Strangers::forget(Runtime& runtime, ncclComm_t comm) {
  if (!any_.load(std::memory_order_acquire) || comm == nullptr) return;
  int ranks = 0;
  if (forward(runtime.nccl.ncclCommCount, comm, &ranks) != ncclSuccess) return;
  const std::lock_guard lock(mutex_);
  hashes_.erase(ranks);
}

}  // namespace railyard::intercept
