// SPDX-License-Identifier: Apache-2.0
//
// A connection this carrier opens to a peer, and the queue of what is to be sent on it. Payload
// goes to the socket straight from staging memory.
//
//   kIdle --write()--> kConnecting --> kOpen --finish(), all written--> kShut --peer closes-->
//   kGone
//
// Credits overtake cells that have not begun. Thread-bound.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/ring.h"
#include "transport/transport.h"

namespace railyard::transport::tcp {

/// What all connections of a transport count into.
struct Tally {
  Counters counters;
  uint64_t unsent = 0;  ///< frames posted and neither handed to the network nor given up
};

struct Peer;

class Outgoing final : public Source {
 public:
  /// Sends from the address of `from`, whatever its port. `peer` is null once the link is closed
  /// and only what was posted is still to be sent.
  Outgoing(Poller& poller, Tally& tally, const net::SocketAddress& from,
           const net::SocketAddress& to, const Hello& hello, Peer* peer);
  ~Outgoing() override { abandon(); }

  Peer* peer = nullptr;
  bool scheduled = false;  ///< the transport will call write() in its next turn

  void post_cell(uint32_t tag, std::span<const std::byte> payload);
  void post_credit(uint32_t tag);
  /// A goodbye and the end of the stream behind all that is posted.
  void finish();

  bool idle() const { return phase_ == Phase::kIdle; }
  bool open() const { return phase_ == Phase::kOpen; }
  bool gone() const { return phase_ == Phase::kGone; }
  /// Whether write() would get anywhere; if not, the poller tells when.
  bool can_write() const { return idle() || (open() && !full_); }
  uint64_t unsent() const;

  enum class Outcome : uint8_t {
    kWaiting,  ///< nothing to write, or the poller tells when to go on
    kMore,     ///< enough for one turn: write() again
    kEnded,    ///< fault() says how
  };
  /// Connects, or writes a good deal of what is queued. `moved` is set if anything was written.
  Outcome write(bool* moved);
  /// What the poller reported.
  Outcome react(uint32_t events, bool* moved);

  /// What went wrong, as the end of a sentence.
  const std::string& fault() const { return fault_; }
  /// The end came as a failure (and data may be lost), not as the peer's orderly close.
  bool failed() const { return failed_; }

  /// Closes the socket and keeps the queue.
  void disconnect();
  /// Also gives up what is queued.
  void abandon();

 private:
  enum class Phase : uint8_t { kIdle, kConnecting, kOpen, kShut, kGone };
  struct Outbound {
    uint32_t tag = 0;
    uint32_t bytes = 0;
    const std::byte* payload = nullptr;
  };
  /// A frame (or the hello) that has to be sent before anything else because it has been begun.
  struct Begun {
    std::array<std::byte, kHelloBytes> head;
    uint32_t head_bytes = 0;
    std::span<const std::byte> payload;
    uint64_t sent = 0;
    std::optional<FrameType> type;  ///< until all is sent; none for the hello
    uint64_t left() const { return head_bytes + payload.size() - sent; }
  };
  struct Batch;

  Outcome connect();
  Outcome connected(bool* moved);
  /// The peer never sends on this connection: whatever can be read is its end.
  Outcome check_end();
  bool anything_to_send();
  void gather(Batch& batch) const;
  void consume(uint64_t bytes, size_t credits);
  /// `bytes` is what is left of what was sent; a frame it does not cover becomes begun_.
  void consume_frame(const FrameHead& head, std::span<const std::byte> payload, uint64_t& bytes);
  void begin(const FrameHead& head, std::span<const std::byte> payload);
  void count(FrameType type, uint64_t payload_bytes);
  void want_writable(bool full);
  Outcome end(std::string fault, bool failed);

  Poller& poller_;
  Tally& tally_;
  const net::SocketAddress from_;
  const net::SocketAddress to_;
  const Hello hello_;
  Phase phase_ = Phase::kIdle;
  UniqueFd fd_;
  bool full_ = false;  ///< the socket takes no more; EPOLLOUT is armed
  bool finishing_ = false, goodbye_begun_ = false;
  int attempts_ = 0;
  bool failed_ = false;
  std::string fault_;
  Ring<uint32_t> credits_;
  Ring<Outbound> cells_;
  Begun begun_;
};

}  // namespace railyard::transport::tcp
