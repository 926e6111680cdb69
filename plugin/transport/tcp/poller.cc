// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/poller.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

namespace railyard::transport::tcp {

Result<std::unique_ptr<Poller>> Poller::make() {
  std::unique_ptr<Poller> poller(new Poller);
  poller->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  poller->bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  poller->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!poller->epoll_.valid() || !poller->bell_.valid() || !poller->timer_.valid()) {
    return Status::system(errno,
                          "the tcp transport cannot make its epoll set; check the limit of "
                          "open files (ulimit -n)");
  }
  // Bell and timer are edge-triggered and so need not be read; their entry has no source.
  for (const int fd : {poller->bell_.get(), poller->timer_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = fd == poller->timer_.get() ? 1 : 0;
    if (epoll_ctl(poller->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return Status::system(errno, "the tcp transport cannot watch its own descriptors");
    }
  }
  return poller;
}

Status Poller::watch(int fd, uint32_t events, Source* source) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = source;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Status::system(errno, "cannot watch a socket; check fs.epoll.max_user_watches");
}

void Poller::change(int fd, uint32_t events, Source* source) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = source;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::forget(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Poller::ring() {
  if (rung_) return;
  rung_ = eventfd_write(bell_.get(), 1) == 0;
}

void Poller::wake_at(Clock::time_point when) {
  if (when >= wake_at_) return;
  wake_at_ = when;
  // All zero would mean "never"; a moment in the past is fine.
  const auto since =
      std::max<std::chrono::nanoseconds>(when.time_since_epoch(), std::chrono::nanoseconds(1));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  itimerspec spec{};
  spec.it_value.tv_sec = seconds.count();
  spec.it_value.tv_nsec = (since - seconds).count();
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

std::span<const epoll_event> Poller::poll() {
  alarm_ = false;
  const int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), 0);
  size_t kept = 0;
  for (size_t i = 0; i < static_cast<size_t>(std::max(count, 0)); ++i) {
    if (events_[i].data.u64 == 0) {
      rung_ = false;
    } else if (events_[i].data.u64 == 1) {
      alarm_ = true;
      wake_at_ = Clock::time_point::max();
    } else {
      events_[kept++] = events_[i];
    }
  }
  return {events_.data(), kept};
}

}  // namespace railyard::transport::tcp
