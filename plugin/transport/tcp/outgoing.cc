// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/outgoing.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "transport/tcp/keep_alive.h"

namespace railyard::transport::tcp {
namespace {

/// One connection writes about this much before others have their turn.
constexpr uint64_t kWriteBudget = 1 << 20;
constexpr size_t kCreditsPerBatch = 128, kCellsPerBatch = 64;
constexpr int kAttempts = 4;

std::byte* writable(const std::byte* bytes) { return const_cast<std::byte*>(bytes); }

}  // namespace

/// What one system call sends: the begun frame, then credits, then cells.
struct Outgoing::Batch {
  std::array<iovec, 3 + 2 * kCellsPerBatch> parts;
  size_t count = 0;
  uint64_t bytes = 0;
  std::array<std::byte, kHeadBytes*(kCreditsPerBatch + kCellsPerBatch)> heads;
  size_t credits = 0, heads_used = 0;

  void add(const std::byte* from, uint64_t length) {
    if (length == 0) return;
    parts[count++] = {writable(from), length};
    bytes += length;
  }
  const std::byte* head(const FrameHead& frame) {
    std::byte* at = heads.data() + kHeadBytes * heads_used++;
    frame.encode(at);
    return at;
  }
};

Outgoing::Outgoing(Poller& poller, Tally& tally, const net::SocketAddress& from,
                   const net::SocketAddress& to, const Hello& hello, Peer* owner)
    : Source(Kind::kOutgoing),
      peer(owner),
      poller_(poller),
      tally_(tally),
      from_(from),
      to_(to),
      hello_(hello) {}

void Outgoing::post_cell(uint32_t tag, std::span<const std::byte> payload) {
  cells_.push({tag, static_cast<uint32_t>(payload.size()), payload.data()});
  ++tally_.unsent;
}

void Outgoing::post_credit(uint32_t tag) {
  credits_.push(tag);
  ++tally_.unsent;
}

void Outgoing::finish() {
  finishing_ = true;
  ++tally_.unsent;
}

uint64_t Outgoing::unsent() const {
  const bool goodbye = finishing_ && !goodbye_begun_;
  return credits_.size() + cells_.size() + (begun_.type ? 1 : 0) + (goodbye ? 1 : 0);
}

Outgoing::Outcome Outgoing::connect() {
  Result<UniqueFd> fd = net::start_connect(to_, from_);
  if (!fd.ok()) return end(fd.status().message(), true);
  fd_ = fd.take();
  net::set_no_delay(fd_.get());
  keep_alive(fd_.get());
  phase_ = Phase::kConnecting;
  const Status watched = poller_.watch(fd_.get(), EPOLLOUT, this);
  return watched.ok() ? Outcome::kWaiting : end(watched.message(), true);
}

Outgoing::Outcome Outgoing::connected(bool* moved) {
  const Status outcome = net::connect_outcome(fd_.get(), to_);
  if (!outcome.ok()) return end(outcome.message(), true);
  std::byte probe{};
  if (recv(fd_.get(), &probe, 1, MSG_PEEK) == 0 && ++attempts_ < kAttempts) {
    // This process slept so long between connecting and saying hello that the peer has dropped
    // the connection. Nothing is lost yet.
    disconnect();
    return connect();
  }
  phase_ = Phase::kOpen;
  begun_ = {};
  std::copy(hello_.begin(), hello_.end(), begun_.head.begin());
  begun_.head_bytes = kHelloBytes;
  full_ = true;  // as armed by connect()
  want_writable(false);
  return write(moved);
}

Outgoing::Outcome Outgoing::react(uint32_t events, bool* moved) {
  if (phase_ == Phase::kConnecting) return connected(moved);
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) {
    const Outcome outcome = check_end();
    if (outcome == Outcome::kEnded) return outcome;
  }
  if ((events & EPOLLOUT) == 0 || phase_ != Phase::kOpen) return Outcome::kWaiting;
  want_writable(false);
  return write(moved);
}

Outgoing::Outcome Outgoing::check_end() {
  std::byte unexpected{};
  const ssize_t got = recv(fd_.get(), &unexpected, 1, 0);
  if (got == 0) return end("the other end closed the connection", false);
  if (got > 0) return end("something other than railyard answers there", true);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Outcome::kWaiting;
  return end(std::generic_category().message(errno), true);
}

bool Outgoing::anything_to_send() {
  if (begun_.left() > 0 || !credits_.empty() || !cells_.empty()) return true;
  if (!finishing_ || goodbye_begun_) return false;
  goodbye_begun_ = true;
  begin({FrameType::kGoodbye, 0, 0}, {});
  return true;
}

Outgoing::Outcome Outgoing::write(bool* moved) {
  if (phase_ == Phase::kIdle) return connect();
  if (phase_ != Phase::kOpen || full_) return Outcome::kWaiting;
  uint64_t written = 0;
  while (anything_to_send()) {
    if (written >= kWriteBudget) return Outcome::kMore;
    Batch batch;
    gather(batch);
    msghdr message{};
    message.msg_iov = batch.parts.data();
    message.msg_iovlen = batch.count;
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        return end(std::generic_category().message(errno), true);
      }
      want_writable(true);
      return Outcome::kWaiting;
    }
    *moved = true;
    written += static_cast<uint64_t>(sent);
    consume(static_cast<uint64_t>(sent), batch.credits);
    if (static_cast<uint64_t>(sent) < batch.bytes) {
      want_writable(true);
      return Outcome::kWaiting;
    }
  }
  if (finishing_) {
    // The socket stays open until the peer has read all and closed its end: an orphaned socket
    // would be given up by the kernel when the peer is slow.
    shutdown(fd_.get(), SHUT_WR);
    phase_ = Phase::kShut;
  }
  return Outcome::kWaiting;
}

void Outgoing::gather(Batch& batch) const {
  if (begun_.left() > 0) {
    const uint64_t of_head = std::min<uint64_t>(begun_.sent, begun_.head_bytes);
    batch.add(begun_.head.data() + of_head, begun_.head_bytes - of_head);
    const auto rest = begun_.payload.subspan(begun_.sent - of_head);
    batch.add(rest.data(), rest.size());
  }
  batch.credits = std::min(credits_.size(), kCreditsPerBatch);
  for (size_t i = 0; i < batch.credits; ++i) batch.head({FrameType::kCredit, credits_[i], 0});
  batch.add(batch.heads.data(), batch.credits * kHeadBytes);
  for (size_t i = 0; i < std::min(cells_.size(), kCellsPerBatch); ++i) {
    if (batch.bytes >= kWriteBudget) break;
    const Outbound& cell = cells_[i];
    batch.add(batch.head({FrameType::kCell, cell.tag, cell.bytes}), kHeadBytes);
    batch.add(cell.payload, cell.bytes);
  }
}

void Outgoing::consume(uint64_t bytes, size_t credits) {
  const uint64_t of_begun = std::min(bytes, begun_.left());
  begun_.sent += of_begun;
  bytes -= of_begun;
  if (begun_.left() == 0 && begun_.type) {
    count(*begun_.type, begun_.payload.size());
    begun_.type.reset();
  }
  for (; bytes > 0 && credits > 0; --credits) {
    consume_frame({FrameType::kCredit, credits_.pop(), 0}, {}, bytes);
  }
  while (bytes > 0) {
    const Outbound cell = cells_.pop();
    consume_frame({FrameType::kCell, cell.tag, cell.bytes}, {cell.payload, cell.bytes}, bytes);
  }
}

void Outgoing::consume_frame(const FrameHead& head, std::span<const std::byte> payload,
                             uint64_t& bytes) {
  const uint64_t whole = kHeadBytes + payload.size();
  if (bytes < whole) {
    begin(head, payload);
    begun_.sent = std::exchange(bytes, 0);
  } else {
    bytes -= whole;
    count(head.type, payload.size());
  }
}

void Outgoing::begin(const FrameHead& head, std::span<const std::byte> payload) {
  head.encode(begun_.head.data());
  begun_.head_bytes = kHeadBytes;
  begun_.payload = payload;
  begun_.sent = 0;
  begun_.type = head.type;
}

void Outgoing::count(FrameType type, uint64_t payload_bytes) {
  --tally_.unsent;
  if (type == FrameType::kCell) {
    ++tally_.counters.cells_sent;
    tally_.counters.cell_bytes_sent += payload_bytes;
  } else if (type == FrameType::kCredit) {
    ++tally_.counters.credits_sent;
  }
}

void Outgoing::want_writable(bool full) {
  if (full == full_) return;
  full_ = full;
  poller_.change(fd_.get(), full ? EPOLLIN | EPOLLOUT : EPOLLIN, this);
}

Outgoing::Outcome Outgoing::end(std::string fault, bool failed) {
  fault_ = std::move(fault);
  failed_ = failed;
  disconnect();
  return Outcome::kEnded;
}

void Outgoing::disconnect() {
  phase_ = Phase::kGone;
  if (!fd_.valid()) return;
  poller_.forget(fd_.get());
  fd_.reset();
}

void Outgoing::abandon() {
  disconnect();
  tally_.unsent -= unsent();
  credits_ = {};
  cells_ = {};
  begun_ = {};
  finishing_ = false;
}

}  // namespace railyard::transport::tcp
