// SPDX-License-Identifier: Apache-2.0
//
// The inside of a MeetingServer: its sockets, meetings and time limits. Thread-bound to the
// server's thread, but for stop() and admit().
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "comm/meeting_server.h"
#include "comm/meeting_wire.h"

namespace railyard::comm {

class MeetingServer::Loop {
 public:
  static Result<std::unique_ptr<Loop>> make(net::Listener listener, const Secret& key,
                                            const MeetingServerOptions& options);
  /// Serves until stop().
  void run();
  void stop();
  void admit(const Secret& key);

 private:
  using Clock = std::chrono::steady_clock;
  struct Meeting;

  struct Connection {
    UniqueFd fd;
    uint64_t number = 0;  ///< names it in the epoll set; descriptors are reused, this is not
    wire::Bytes in;
    std::deque<std::shared_ptr<const wire::Bytes>> out;
    size_t out_offset = 0;
    bool watches_out = false;
    bool closing = false;  ///< as soon as `out` has left
    Meeting* meeting = nullptr;
    uint32_t rank = 0;
    Clock::time_point limit = Clock::time_point::max();
  };

  struct Meeting {
    Secret name{};
    std::vector<Connection*> seats;  ///< by rank; null: not come, or gone
    std::vector<wire::Bytes> parts;  ///< of this round
    std::vector<bool> there;         ///< whose part is
    std::set<uint32_t> gone;         ///< ranks whose connection broke
    uint32_t come = 0, parts_there = 0;
    bool first_round = true;
    std::shared_ptr<const wire::Bytes> failure;  ///< the answer to everything from now on
    Clock::time_point limit = Clock::time_point::max();
  };

  explicit Loop(const MeetingServerOptions& options) : options_(options) {}

  Status watch(int fd, uint64_t number, uint32_t events, int operation);
  void accept_all();
  void on_readable(Connection& connection);
  /// False: drop the connection.
  bool understand(Connection& connection);
  bool greet(Connection& connection);
  bool admitted(const Secret& key);
  bool take_seat(Connection& connection, const Hello& hello);
  bool take_part(Connection& connection, wire::Bytes part);
  void settle(Meeting& meeting);
  void fail(Meeting& meeting, Answer::Kind kind, std::vector<uint32_t> ranks);
  void queue(Connection& connection, std::shared_ptr<const wire::Bytes> frame);
  /// False: the connection is broken.
  bool flush(Connection& connection);
  void drop(Connection& connection, const char* why);
  void leave(Connection& connection);
  void remember(const Meeting& meeting);

  void set_limit(Clock::time_point& limit, int64_t ms);
  void enforce_limits();
  int wait_ms() const;

  const MeetingServerOptions options_;
  net::Listener listener_;
  std::mutex mutex_;          ///< guards keys_
  std::vector<Secret> keys_;  ///< any of them opens
  UniqueFd epoll_, stop_;
  bool stopping_ = false;
  bool told_version_ = false;
  uint64_t next_number_ = 2;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::map<Secret, std::unique_ptr<Meeting>> meetings_;
  std::map<Secret, std::shared_ptr<const wire::Bytes>> failed_;  ///< for ranks that come too late
  std::deque<Secret> failed_order_;
  Clock::time_point earliest_ = Clock::time_point::max();  ///< no limit is earlier
  /// While the process has no descriptors left, nobody is accepted until then.
  Clock::time_point listen_again_ = Clock::time_point::max();
};

}  // namespace railyard::comm
