// SPDX-License-Identifier: Apache-2.0
//
// Where connections come in: the listening socket, and those who have not yet proven that they
// know this carrier's secret. Who does not in time, or sends anything else, is dropped.
//
// Thread-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/incoming.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/tcp_transport.h"

namespace railyard::transport::tcp {

class Door final : public Source {
 public:
  Door(Poller& poller, const TcpOptions& options, const Token& secret)
      : Source(Kind::kListener), poller_(poller), options_(options), secret_(secret) {}

  Status open();
  /// With the port that was given. REQUIRES: open() succeeded.
  const net::SocketAddress& address() const { return listener_.address; }

  /// The listener is readable.
  void accept();
  /// An unproven connection is readable. Not null, with its opener's id: it is proven.
  std::unique_ptr<Incoming> prove(Incoming& incoming, Token* opener);
  /// The alarm went off: drops who took too long.
  void check(Clock::time_point now);
  /// Frees what was dropped; when no event of theirs is in hand.
  void reap() { dropped_.clear(); }

 private:
  void drop(size_t index, const char* why);
  std::unique_ptr<Incoming> take(size_t index);
  void listen_again();

  Poller& poller_;
  const TcpOptions options_;
  const Token secret_;
  net::Listener listener_;
  bool paused_ = false;  ///< the listener is not watched: no room, or no descriptors
  std::vector<std::unique_ptr<Incoming>> unproven_, dropped_;
};

}  // namespace railyard::transport::tcp
