// SPDX-License-Identifier: Apache-2.0
#include "exchange/health.h"

#include <atomic>
#include <utility>

#include "base/log.h"

namespace railyard::exchange {

Health::Health(std::vector<std::string> names, const kernels::RankStatus* status)
    : names_(std::move(names)), status_(status) {}

Status Health::error() {
  std::lock_guard lock(mutex_);
  if (!error_.ok()) return error_;
  const kernels::FaultRecord& record = status_->fault;
  const uint32_t fault =
      std::atomic_ref(const_cast<uint32_t&>(record.fault)).load(std::memory_order_acquire);
  if (fault != 0) settle(describe(record));
  return error_;
}

void Health::fail(Status status) {
  std::lock_guard lock(mutex_);
  if (error_.ok()) settle(std::move(status));
}

void Health::lost(int peer, const std::string& why) {
  std::lock_guard lock(mutex_);
  lost_.emplace(peer, why);
}

void Health::settle(Status status) {
  error_ = std::move(status);
  log::warn("%s", error_.message().c_str());
}

Status Health::describe(const kernels::FaultRecord& record) {
  const auto name = [this](uint32_t rank) {
    return rank < names_.size() ? names_[rank].c_str() : "an unknown rank";
  };
  const char* source = name(record.source);
  const char* destination = name(record.destination);
  switch (static_cast<kernels::Fault>(record.fault)) {
    case kernels::Fault::kNone:
      return {};
    case kernels::Fault::kSizeMismatch:
      return Status::error(
          Code::kInvalidUsage,
          "%s sent %llu bytes to %s, whose receive expects %llu bytes: both sides of a message "
          "must name the same size",
          source, static_cast<unsigned long long>(record.sent), destination,
          static_cast<unsigned long long>(record.expected));
    case kernels::Fault::kSequence:
      return Status::error(Code::kInternal,
                           "a cell from %s to %s is not the expected one: memory was overwritten",
                           source, destination);
    case kernels::Fault::kPeerFailed:
      break;
  }
  for (const uint32_t peer : {record.source, record.destination}) {
    const auto known = lost_.find(static_cast<int>(peer));
    if (known != lost_.end()) {
      return Status::error(Code::kRemoteError, "messages from %s to %s stopped: %s", source,
                           destination, known->second.c_str());
    }
  }
  return Status::error(
      Code::kRemoteError,
      "messages from %s to %s stopped: the other side or its relay has ended or given "
      "up; see its log",
      source, destination);
}

}  // namespace railyard::exchange
