// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/waiter.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace railyard::verbs {
namespace {

epoll_event make_event(uint32_t events, Watch what, uint32_t which) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(what) << 32 | which;
  return event;
}

}  // namespace

Result<std::unique_ptr<Waiter>> Waiter::make() {
  std::unique_ptr<Waiter> waiter(new Waiter);
  waiter->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  waiter->bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  waiter->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!waiter->epoll_.valid() || !waiter->bell_.valid() || !waiter->timer_.valid())
    return Status::system(errno, "verbs: cannot create descriptors (see ulimit -n)");
  for (const auto& [fd, what] : {std::pair(waiter->bell_.get(), Watch::kBell),
                                 std::pair(waiter->timer_.get(), Watch::kAlarm)})
    if (Status status = waiter->watch(fd, EPOLLIN, what, 0); !status.ok()) return status;
  return waiter;
}

Status Waiter::watch(int fd, uint32_t events, Watch what, uint32_t which) {
  epoll_event event = make_event(events, what, which);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Status();
  return Status::system(errno, "verbs: cannot watch a descriptor");
}

void Waiter::change(int fd, uint32_t events, Watch what, uint32_t which) {
  epoll_event event = make_event(events, what, which);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Waiter::forget(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Waiter::ring() {
  if (std::exchange(rung_, true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof(one));
}

void Waiter::hush() {
  if (!std::exchange(rung_, false)) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(bell_.get(), &count, sizeof(count));
}

void Waiter::wake_at(Clock::time_point when) {
  if (when >= wake_at_) return;
  wake_at_ = when;
  using std::chrono::nanoseconds;
  const auto left =
      std::max<int64_t>(std::chrono::duration_cast<nanoseconds>(when - Clock::now()).count(), 1);
  itimerspec timer{};
  timer.it_value.tv_sec = left / 1'000'000'000;
  timer.it_value.tv_nsec = left % 1'000'000'000;
  timerfd_settime(timer_.get(), 0, &timer, nullptr);
}

std::span<const epoll_event> Waiter::poll() {
  alarm_ = false;
  const int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), 0);
  const std::span<const epoll_event> found(events_.data(), static_cast<size_t>(std::max(count, 0)));
  for (const epoll_event& event : found) {
    if (what(event) != Watch::kAlarm) continue;
    uint64_t ticks = 0;
    [[maybe_unused]] const ssize_t got = read(timer_.get(), &ticks, sizeof(ticks));
    wake_at_ = Clock::time_point::max();
    alarm_ = true;
  }
  return found;
}

}  // namespace railyard::verbs
