// SPDX-License-Identifier: Apache-2.0
//
// The one descriptor a verbs transport is waited for by: an epoll set with the completion channels,
// the devices' event descriptors, the sockets, a bell and an alarm. Thread-bound.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "base/unique_fd.h"

namespace railyard::verbs {

using Clock = std::chrono::steady_clock;

/// What a descriptor belongs to.
enum class Watch : uint32_t { kBell, kAlarm, kListener, kCompletions, kDevice, kStranger, kLink };

class Waiter {
 public:
  static Result<std::unique_ptr<Waiter>> make();

  int fd() const { return epoll_.get(); }

  /// `which` comes back in events.
  Status watch(int fd, uint32_t events, Watch what, uint32_t which);
  void change(int fd, uint32_t events, Watch what, uint32_t which);
  /// Call before closing a watched descriptor: a forked child may hold a copy.
  void forget(int fd);

  /// Keeps fd() readable until hush().
  void ring();
  void hush();

  /// Makes fd() readable at `when`, unless it is going to be earlier.
  void wake_at(Clock::time_point when);

  /// What is ready now, without waiting.
  std::span<const epoll_event> poll();
  /// Whether the last poll() found the alarm due; it is then no longer set.
  bool alarm() const { return alarm_; }

  static Watch what(const epoll_event& event) { return static_cast<Watch>(event.data.u64 >> 32); }
  static uint32_t which(const epoll_event& event) { return static_cast<uint32_t>(event.data.u64); }

 private:
  Waiter() = default;

  UniqueFd epoll_, bell_, timer_;
  bool rung_ = false, alarm_ = false;
  Clock::time_point wake_at_ = Clock::time_point::max();
  std::array<epoll_event, 32> events_{};
};

}  // namespace railyard::verbs
