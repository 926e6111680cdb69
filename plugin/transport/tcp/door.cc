// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/door.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "transport/tcp/keep_alive.h"

namespace railyard::transport::tcp {
namespace {

constexpr auto kRetryAccept = std::chrono::milliseconds(100);

}  // namespace

Status Door::open() {
  Result<net::Listener> listener = net::listen_on(options_.bind);
  if (!listener.ok()) return listener.status();
  listener_ = listener.take();
  return poller_.watch(listener_.fd.get(), EPOLLIN, this);
}

void Door::accept() {
  while (unproven_.size() < options_.max_unproven) {
    Result<UniqueFd> fd = net::accept_next(listener_.fd.get());
    if (fd.ok() && !fd->valid()) return;
    const Clock::time_point now = Clock::now();
    if (!fd.ok()) {
      log::trace("tcp: %s; trying again", fd.status().message().c_str());
      poller_.wake_at(now + kRetryAccept);
      break;
    }
    keep_alive(fd->get());
    const auto prove_by = now + std::chrono::milliseconds(options_.prove_ms);
    auto incoming = std::make_unique<Incoming>(fd.take(), prove_by);
    if (!poller_.watch(incoming->fd(), EPOLLIN, incoming.get()).ok()) continue;
    poller_.wake_at(prove_by);
    unproven_.push_back(std::move(incoming));
  }
  paused_ = true;
  poller_.change(listener_.fd.get(), 0, this);
}

void Door::listen_again() {
  if (!paused_ || unproven_.size() >= options_.max_unproven) return;
  paused_ = false;
  poller_.change(listener_.fd.get(), EPOLLIN, this);
}

std::unique_ptr<Incoming> Door::prove(Incoming& incoming, Token* opener) {
  const auto at = std::find_if(unproven_.begin(), unproven_.end(),
                               [&](const auto& entry) { return entry.get() == &incoming; });
  if (at == unproven_.end()) return nullptr;
  const auto index = static_cast<size_t>(at - unproven_.begin());
  switch (incoming.prove(secret_, opener)) {
    case Incoming::Proof::kNotYet:
      return nullptr;
    case Incoming::Proof::kFailed:
      drop(index, "it did not prove to belong to this job");
      return nullptr;
    case Incoming::Proof::kGiven:
      break;
  }
  return take(index);
}

void Door::check(Clock::time_point now) {
  for (size_t i = unproven_.size(); i-- > 0;) {
    if (now >= unproven_[i]->prove_by()) {
      drop(i, "it took too long to prove to belong to this job");
    } else {
      poller_.wake_at(unproven_[i]->prove_by());
    }
  }
  listen_again();
}

void Door::drop(size_t index, const char* why) {
  log::trace("tcp: dropped a connection to %s: %s", listener_.address.text().c_str(), why);
  unproven_[index]->close(poller_);
  dropped_.push_back(take(index));
}

std::unique_ptr<Incoming> Door::take(size_t index) {
  std::unique_ptr<Incoming> taken = std::exchange(unproven_[index], nullptr);
  std::swap(unproven_[index], unproven_.back());
  unproven_.pop_back();
  listen_again();
  return taken;
}

}  // namespace railyard::transport::tcp
