// SPDX-License-Identifier: Apache-2.0
//
// The one descriptor a transport can be waited for by: an epoll set with all its sockets, a bell
// for work that no socket announces, and one alarm.
//
// Thread-bound.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "base/unique_fd.h"

namespace railyard::transport::tcp {

using Clock = std::chrono::steady_clock;

/// Whatever owns a watched socket.
struct Source {
  enum class Kind : uint8_t { kListener, kIncoming, kOutgoing };
  explicit Source(Kind what) : kind(what) {}
  virtual ~Source() = default;
  const Kind kind;
  bool dead = false;  ///< its socket is closed; events still in hand are for nobody
};

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> make();

  int fd() const { return epoll_.get(); }

  /// `events` may be 0; errors are reported all the same.
  Status watch(int fd, uint32_t events, Source* source);
  void change(int fd, uint32_t events, Source* source);
  /// Call before closing a watched socket: a forked child may hold a copy that would keep the
  /// epoll set reporting it.
  void forget(int fd);

  /// Makes fd() readable until the next poll().
  void ring();
  /// Makes fd() readable from `when` on, unless it already is to be earlier.
  void wake_at(Clock::time_point when);

  /// What is ready now, without waiting.
  std::span<const epoll_event> poll();
  /// Whether the last poll() found the alarm due; it is then no longer set.
  bool alarm() const { return alarm_; }

 private:
  Poller() = default;

  UniqueFd epoll_, bell_, timer_;
  bool rung_ = false;
  bool alarm_ = false;
  Clock::time_point wake_at_ = Clock::time_point::max();
  std::array<epoll_event, 64> events_;
};

}  // namespace railyard::transport::tcp
