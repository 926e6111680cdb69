// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <cstring>

#include "base/log.h"
#include "comm/stats.h"

namespace railyard::comm {

JoinedCommunicator::JoinedCommunicator(Identity identity, exchange::Gpu& gpu,
                                       std::unique_ptr<exchange::Engine> engine)
    : identity_(std::move(identity)), gpu_(&gpu), engine_(std::move(engine)) {}

JoinedCommunicator::~JoinedCommunicator() {
  if (engine_ == nullptr || !begin_end()) return;
  engine_->abort();
  end();
}

uint64_t JoinedCommunicator::order() const {
  uint64_t order = 0;
  std::memcpy(&order, identity_.point.meeting.data(), sizeof order);
  return order;
}

MeetingPoint JoinedCommunicator::next_shrunk(const std::vector<int>& excluded) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = shrinks_[excluded]++;
  }
  MeetingPoint point = identity_.point.shrunk(excluded, number);
  size_t lowest = 0;  // who is left; the process of rank 0 may be gone
  while (lowest < excluded.size() && excluded[lowest] == static_cast<int>(lowest)) ++lowest;
  if (identity_.servers != nullptr && lowest < identity_.servers->size()) {
    point.address = (*identity_.servers)[lowest].address;
    point.key = (*identity_.servers)[lowest].key;
  }
  return point;
}

bool JoinedCommunicator::begin_end() {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kLive) return false;
  phase_ = Phase::kEnding;
  return true;
}

void JoinedCommunicator::destroy() {
  if (engine_ == nullptr || !begin_end()) return;
  const Status farewell = engine_->farewell();
  if (!farewell.ok()) {
    log::info("rank %d of %d: the communicator ends broken: %s", identity_.rank, identity_.ranks,
              farewell.message().c_str());
  }
  end();
}

void JoinedCommunicator::stop() {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kGone && engine_ != nullptr) engine_->abort();
}

void JoinedCommunicator::end() {
  write_statistics(identity_, *gpu_, engine_->statistics());
  const std::lock_guard lock(mutex_);
  phase_ = Phase::kGone;
  const device::ContextScope scope(gpu_->driver(), gpu_->context());
  engine_.reset();
}

}  // namespace railyard::comm
