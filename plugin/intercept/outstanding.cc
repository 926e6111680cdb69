// SPDX-License-Identifier: Apache-2.0
#include "intercept/outstanding.h"

#include <algorithm>

#include "intercept/runtime.h"

namespace railyard::intercept {
namespace {

/// Programs may also ask the new handle, once NCCL has put it where they look for it.
bool concerns(const Creation& creation, ncclComm_t handle) {
  if (handle == nullptr) return false;
  if (creation.parent == handle || creation.handle == handle) return true;
  // NCCL keeps the place in mind only if it has not filled it yet, and so may we.
  if (creation.handle != nullptr) return false;
  return std::atomic_ref(*creation.target).load(std::memory_order_relaxed) == handle;
}

bool concerns(const Parked& parked, ncclComm_t handle) {
  const std::vector<ncclComm_t>& all = parked.communicators;
  return std::find(all.begin(), all.end(), handle) != all.end();
}

void bind(Runtime& runtime, const Creation& creation) {
  std::shared_ptr<comm::Communicator> communicator = creation.joining->wait();
  if (communicator == nullptr) return;
  const ncclComm_t handle = creation.handle != nullptr ? creation.handle : *creation.target;
  communicator->standing.blocking = creation.blocking;
  if (handle != nullptr) runtime.manager.bind(handle, std::move(communicator));
}

}  // namespace

ncclResult_t Outstanding::settle(Runtime& runtime, Creation creation, ncclResult_t result) {
  if (creation.joining == nullptr) return result;
  if (result != ncclSuccess && result != ncclInProgress) {
    abandon(std::move(creation.joining));
    return result;
  }
  if (result == ncclSuccess && (creation.may_wait || creation.joining->done())) {
    bind(runtime, creation);
    return result;
  }
  creation.handle = *creation.target;
  const std::lock_guard lock(mutex_);
  creations_.push_back(std::move(creation));
  ++waiting_;
  return ncclInProgress;
}

void Outstanding::park(std::vector<Batch> batches, std::vector<ncclComm_t> others) {
  for (const Batch& batch : batches) {
    if (std::find(others.begin(), others.end(), batch.handle) == others.end()) {
      others.push_back(batch.handle);
    }
  }
  const std::lock_guard lock(mutex_);
  parked_.push_back({std::move(batches), std::move(others)});
  ++waiting_;
}

bool Outstanding::busy(ncclComm_t handle) {
  if (waiting_ == 0) return false;
  const std::lock_guard lock(mutex_);
  return std::any_of(creations_.begin(), creations_.end(),
                     [handle](const Creation& c) { return concerns(c, handle); }) ||
         std::any_of(parked_.begin(), parked_.end(),
                     [handle](const Parked& p) { return concerns(p, handle); });
}

ncclResult_t Outstanding::advance(Runtime& runtime, ncclComm_t handle, ncclResult_t state) {
  if (waiting_ == 0 || state == ncclInProgress) return state;
  state = advance_creations(runtime, handle, state);
  return state == ncclInProgress ? state : advance_parked(runtime, handle, state);
}

ncclResult_t Outstanding::advance_creations(Runtime& runtime, ncclComm_t handle,
                                            ncclResult_t state) {
  std::vector<Creation> ready;
  {
    const std::lock_guard lock(mutex_);
    const auto waits = [handle, state](const Creation& c) {
      return concerns(c, handle) && state == ncclSuccess && !c.joining->done();
    };
    if (std::any_of(creations_.begin(), creations_.end(), waits)) return ncclInProgress;
    const auto first =
        std::stable_partition(creations_.begin(), creations_.end(),
                              [handle](const Creation& c) { return !concerns(c, handle); });
    std::move(first, creations_.end(), std::back_inserter(ready));
    creations_.erase(first, creations_.end());
    waiting_ -= ready.size();
  }
  for (Creation& creation : ready) {
    if (state == ncclSuccess) {
      bind(runtime, creation);
    } else {
      abandon(std::move(creation.joining));
    }
  }
  return state;
}

ncclResult_t Outstanding::advance_parked(Runtime& runtime, ncclComm_t handle, ncclResult_t state) {
  std::vector<ncclComm_t> handles;
  {
    const std::lock_guard lock(mutex_);
    for (const Parked& parked : parked_) {
      if (!concerns(parked, handle)) continue;
      handles.insert(handles.end(), parked.communicators.begin(), parked.communicators.end());
    }
  }
  // A group starts as a whole: NCCL must be done with all of its communicators.
  for (ncclComm_t other : handles) {
    ncclResult_t state_of_other = ncclSuccess;
    if (other != handle) forward(runtime.nccl.ncclCommGetAsyncError, other, &state_of_other);
    if (state_of_other == ncclInProgress) return ncclInProgress;
    if (state == ncclSuccess) state = state_of_other;
  }
  std::vector<Batch> ready;
  {
    const std::lock_guard lock(mutex_);
    waiting_ -= std::erase_if(parked_, [&](Parked& parked) {
      if (!concerns(parked, handle)) return false;
      std::move(parked.batches.begin(), parked.batches.end(), std::back_inserter(ready));
      return true;
    });
  }
  return state == ncclSuccess ? launch_all(runtime, std::move(ready)) : state;
}

void Outstanding::forget(ncclComm_t handle) {
  std::vector<std::shared_ptr<comm::Joining>> given_up;
  {
    const std::lock_guard lock(mutex_);
    waiting_ -= std::erase_if(creations_, [&](Creation& creation) {
      if (!concerns(creation, handle)) return false;
      given_up.push_back(std::move(creation.joining));
      return true;
    });
    waiting_ -= std::erase_if(parked_, [&](Parked& parked) {
      std::erase(parked.communicators, handle);
      std::erase_if(parked.batches, [&](const Batch& batch) { return batch.handle == handle; });
      return parked.batches.empty();
    });
  }
  for (auto& joining : given_up) abandon(std::move(joining));
}

void Outstanding::abandon(std::shared_ptr<comm::Joining> joining) {
  // Its outcome may be long in coming, and the caller must learn of NCCL's failure now: what the
  // join yields is let go when the next one is given up.
  std::vector<std::shared_ptr<comm::Joining>> over;
  {
    const std::lock_guard lock(mutex_);
    abandoned_.push_back(std::move(joining));
    const auto first = std::stable_partition(abandoned_.begin(), abandoned_.end(),
                                             [](const auto& one) { return !one->done(); });
    std::move(first, abandoned_.end(), std::back_inserter(over));
    abandoned_.erase(first, abandoned_.end());
  }
}

}  // namespace railyard::intercept
