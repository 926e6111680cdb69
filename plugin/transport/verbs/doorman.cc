// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/doorman.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace railyard::verbs {
namespace {

constexpr auto kHelloTime = std::chrono::seconds(10);
constexpr auto kDoorShut = std::chrono::milliseconds(100);
constexpr size_t kMaxStrangers = 64;
constexpr size_t kMaxCallers = 1024;

}  // namespace

Result<std::unique_ptr<Doorman>> Doorman::make(Waiter& waiter, const net::SocketAddress& at,
                                               const Key& key) {
  Result<net::Listener> listener = net::listen_on(at);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<Doorman> self(new Doorman(waiter, key));
  self->listener_ = listener.take();
  const Status watched = waiter.watch(self->listener_.fd.get(), EPOLLIN, Watch::kListener, 0);
  if (!watched.ok()) return watched;
  return self;
}

size_t Doorman::strangers() const {
  return static_cast<size_t>(std::count_if(callers_.begin(), callers_.end(),
                                           [](const Caller& caller) { return !caller.hello; }));
}

void Doorman::shut_door() {
  shut_ = true;
  waiter_.change(listener_.fd.get(), 0, Watch::kListener, 0);
  waiter_.wake_at(Clock::now() + kDoorShut);
}

void Doorman::open_door() {
  while (strangers() < kMaxStrangers && callers_.size() < kMaxCallers) {
    Result<UniqueFd> fd = net::accept_next(listener_.fd.get());
    if (!fd.ok()) {
      log::warn("verbs: %s", fd.status().message().c_str());
      return shut_door();
    }
    if (!fd->valid()) return;
    Caller caller;
    caller.number = next_number_++;
    caller.line = Line(fd.take());
    caller.until = Clock::now() + kHelloTime;
    waiter_.wake_at(caller.until);
    const Status watched =
        waiter_.watch(caller.line.fd(), EPOLLIN, Watch::kStranger, caller.number);
    if (watched.ok()) callers_.push_back(std::move(caller));
  }
  shut_door();
}

void Doorman::hear(uint32_t which) {
  const auto caller = std::find_if(callers_.begin(), callers_.end(),
                                   [&](const Caller& c) { return c.number == which; });
  if (caller == callers_.end()) return;
  listen_to(*caller);
  forget_gone();
}

void Doorman::listen_to(Caller& caller) {
  const Result<std::optional<wire::Bytes>> frame = caller.line.receive();
  if (!frame.ok()) {
    log::trace("verbs: a caller left: %s", frame.status().message().c_str());
    return dismiss(caller.line);
  }
  if (!*frame) return;
  wire::Reader in(**frame);
  // Whoever has said hello has nothing more to say before he is answered.
  const bool hello = in.u8() == static_cast<uint8_t>(Frame::kHello) && !caller.hello;
  if (hello) caller.hello = Introduction::decode(in);
  if (hello && caller.hello && net::equal_secrets(caller.hello->peer_key, key_)) return;
  log::trace("verbs: dropped a connection that did not prove itself");
  dismiss(caller.line);
}

void Doorman::dismiss(Line& line) {
  if (!line.open()) return;
  waiter_.forget(line.fd());
  line.close();
}

void Doorman::forget_gone() {
  std::erase_if(callers_, [](const Caller& caller) { return !caller.line.open(); });
}

void Doorman::for_each_caller(const Host& host) {
  if (callers_.empty()) return;
  for (Caller& caller : callers_)
    if (caller.hello && caller.line.open()) host(*caller.hello, caller.line);
  forget_gone();
}

void Doorman::on_alarm(Clock::time_point now) {
  for (Caller& caller : callers_) {
    if (caller.hello) continue;
    if (now >= caller.until) {
      dismiss(caller.line);
    } else {
      waiter_.wake_at(caller.until);
    }
  }
  forget_gone();
  if (!std::exchange(shut_, false)) return;
  waiter_.change(listener_.fd.get(), EPOLLIN, Watch::kListener, 0);
}

}  // namespace railyard::verbs
