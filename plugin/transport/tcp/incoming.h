// SPDX-License-Identifier: Apache-2.0
//
// A connection that a peer opened and cells and credits are read from. Payload goes from the
// socket straight to where the Receiver wants it.
//
//   new --prove()--> proven [--held, unread, until its link is opened--] --read()--> ended
//
// Thread-bound.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/poller.h"
#include "transport/transport.h"

namespace railyard::transport::tcp {

struct Peer;

/// Whom frames are for. `link` may change or go while frames are delivered, by what the Receiver
/// does.
struct Delivery {
  Receiver& receiver;
  const std::optional<LinkId>& link;
  Counters& counters;
  uint64_t landing_bytes;  ///< no cell is longer
};

class Incoming final : public Source {
 public:
  Incoming(UniqueFd fd, Clock::time_point prove_by)
      : Source(Kind::kIncoming), prove_by_(prove_by), fd_(std::move(fd)) {}

  Peer* peer = nullptr;  ///< who opened it; null until that is proven
  bool held = false;

  int fd() const { return fd_.get(); }
  Clock::time_point prove_by() const { return prove_by_; }

  enum class Proof : uint8_t { kNotYet, kGiven, kFailed };
  /// Reads the hello and nothing behind it; fills `opener` when given.
  Proof prove(const Token& secret, Token* opener);

  enum class Outcome : uint8_t {
    kDry,      ///< all that has come is read
    kMore,     ///< enough for one turn
    kGoodbye,  ///< the peer has closed the link in good order
    kRefused,  ///< a cell for a link that is closed here
    kEnded,    ///< broken; fault() says how
  };
  /// REQUIRES: proven. `moved` is set if anything was read.
  Outcome read(const Delivery& to, bool* moved);
  /// What went wrong, as the end of a sentence.
  const std::string& fault() const { return fault_; }

  /// Closes the socket. `reset`: so that the peer learns that its data was thrown away.
  void close(Poller& poller, bool reset = false);

 private:
  /// Nothing: all frames that are complete have been delivered.
  std::optional<Outcome> deliver(const Delivery& to);
  std::optional<Outcome> begin_cell(const FrameHead& head, const Delivery& to);
  void take_buffered();
  /// Bytes read; 0 if there are none. Less than was room for: no more have come.
  size_t receive(bool* filled, bool* ended);
  Outcome end(std::string fault);

  const Clock::time_point prove_by_;
  UniqueFd fd_;
  std::string fault_;

  std::array<std::byte, 4096> buffer_;  ///< heads, and the beginnings of payloads
  size_t begin_ = 0, end_ = 0;          ///< the part of buffer_ not yet used up

  struct Payload {
    LinkId link{};
    uint32_t tag = 0;
    std::byte* to = nullptr;  ///< null: nobody wants it
    uint32_t left = 0;
  };
  std::optional<Payload> payload_;  ///< of the cell being received
};

}  // namespace railyard::transport::tcp
