// SPDX-License-Identifier: Apache-2.0
//
// The TCP connection beside a link's queue pairs: whole frames (handshake.h) in both directions
// without ever blocking. Thread-bound.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "base/wire.h"

namespace railyard::verbs {

class Line {
 public:
  Line() = default;
  /// A connection just accepted or begun.
  explicit Line(UniqueFd fd);
  Line(Line&&) = default;
  Line& operator=(Line&&) = default;

  int fd() const { return fd_.get(); }
  bool open() const { return fd_.valid(); }
  /// Drops what is unsent. The peer reads what was sent, then the end.
  void close() { *this = Line(); }

  /// Queues a frame and sends what the socket takes. Failures show in receive().
  void send(std::span<const std::byte> frame);
  /// Sends more of what is queued.
  void flush();
  bool wants_to_write() const { return sent_ < out_.size(); }

  /// The next whole frame, or nothing yet. kRemoteError: the peer has closed, or the connection
  /// failed, or what came is no frame.
  Result<std::optional<wire::Bytes>> receive();

 private:
  std::optional<wire::Bytes> take_frame();

  UniqueFd fd_;
  wire::Bytes in_, out_;
  size_t sent_ = 0;
  bool bad_ = false;
};

}  // namespace railyard::verbs
