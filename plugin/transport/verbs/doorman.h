// SPDX-License-Identifier: Apache-2.0
//
// Receives those who dial this carrier: accepts connections, reads their Hello, drops whoever does
// not know the key, and keeps the others until their link can answer. Thread-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/line.h"
#include "transport/verbs/waiter.h"

namespace railyard::verbs {

class Doorman {
 public:
  /// Listens at `at`, an address of one interface; port 0 is any.
  static Result<std::unique_ptr<Doorman>> make(Waiter& waiter, const net::SocketAddress& at,
                                               const Key& key);

  const net::SocketAddress& address() const { return listener_.address; }
  bool has_callers() const { return !callers_.empty(); }

  /// Somebody is at the door.
  void open_door();
  /// Stranger `which` has said something.
  void hear(uint32_t which);
  void on_alarm(Clock::time_point now);

  /// Shows every caller who has proven himself. The callee lets him wait, dismisses him or has him
  /// handed over.
  using Host = std::function<void(const Introduction& hello, Line& line)>;
  void for_each_caller(const Host& host);
  void dismiss(Line& line);
  /// The line stays watched, under the doorman's key: change that.
  static Line hand_over(Line& line) { return std::exchange(line, Line()); }

 private:
  struct Caller {
    uint32_t number = 0;
    Line line;
    std::optional<Introduction> hello;
    Clock::time_point until{};  ///< for his hello
  };

  Doorman(Waiter& waiter, const Key& key) : waiter_(waiter), key_(key) {}
  void listen_to(Caller& caller);
  void shut_door();
  void forget_gone();
  size_t strangers() const;

  Waiter& waiter_;
  const Key key_;
  net::Listener listener_;
  bool shut_ = false;
  uint32_t next_number_ = 0;
  std::vector<Caller> callers_;
};

}  // namespace railyard::verbs
