// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/incoming.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace railyard::transport::tcp {
namespace {

/// One connection reads this much before others have their turn.
constexpr uint64_t kReadBudget = 1 << 20;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

Incoming::Proof Incoming::prove(const Token& secret, Token* opener) {
  while (end_ < kHelloBytes) {
    const ssize_t got = recv(fd_.get(), buffer_.data() + end_, kHelloBytes - end_, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block(errno)) return Proof::kNotYet;
    if (got <= 0) return Proof::kFailed;
    end_ += static_cast<size_t>(got);
  }
  const auto id = prove_hello(std::span(buffer_).first(kHelloBytes), secret);
  begin_ = end_ = 0;
  if (!id) return Proof::kFailed;
  *opener = *id;
  return Proof::kGiven;
}

Incoming::Outcome Incoming::read(const Delivery& to, bool* moved) {
  // Closed since the cell began: its landing slot may already be somebody else's.
  if (payload_ && to.link != payload_->link) return Outcome::kRefused;
  uint64_t taken = 0;
  while (taken < kReadBudget) {
    bool filled = false, ended = false;
    const size_t got = receive(&filled, &ended);
    taken += got;
    if (got > 0) *moved = true;
    if (const auto outcome = deliver(to)) return *outcome;
    if (ended) return Outcome::kEnded;
    if (!filled) return Outcome::kDry;
  }
  return Outcome::kMore;
}

size_t Incoming::receive(bool* filled, bool* ended) {
  // What is left is at most the beginning of a head.
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;

  // Unwanted payload goes through the buffer like heads, and is forgotten there.
  std::array<iovec, 2> parts;
  size_t count = 0, direct = 0;
  if (payload_ && payload_->to != nullptr) {
    direct = payload_->left;
    parts[count++] = {payload_->to, direct};
  }
  parts[count++] = {buffer_.data() + end_, buffer_.size() - end_};
  const size_t room = direct + buffer_.size() - end_;
  ssize_t got = 0;
  do {
    got = readv(fd_.get(), parts.data(), static_cast<int>(count));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    if (got < 0 && would_block(errno)) return 0;
    end(got == 0 ? "the connection closed without a goodbye"
                 : std::generic_category().message(errno));
    *ended = true;
    return 0;
  }
  const auto bytes = static_cast<size_t>(got);
  const size_t into_payload = std::min(bytes, direct);
  if (into_payload > 0) {
    payload_->left -= static_cast<uint32_t>(into_payload);
    payload_->to += into_payload;
  }
  end_ += bytes - into_payload;
  *filled = bytes == room;
  return bytes;
}

std::optional<Incoming::Outcome> Incoming::deliver(const Delivery& to) {
  while (true) {
    if (payload_) {
      if (to.link != payload_->link) return Outcome::kRefused;  // by what a callback did
      take_buffered();
      if (payload_->left > 0) return std::nullopt;
      const Payload done = *std::exchange(payload_, std::nullopt);
      if (done.to == nullptr) {
        ++to.counters.cells_dropped;
      } else {
        ++to.counters.cells_received;
        to.receiver.on_cell(done.link, done.tag);
      }
    }
    if (end_ - begin_ < kHeadBytes) return std::nullopt;
    const FrameHead head = FrameHead::decode(buffer_.data() + begin_);
    begin_ += kHeadBytes;
    if (head.tag > kMaxTag) return end("it sent a frame that makes no sense");
    switch (head.type) {
      case FrameType::kCell:
        if (const auto outcome = begin_cell(head, to)) return outcome;
        break;
      case FrameType::kCredit:
        if (to.link) {
          ++to.counters.credits_received;
          to.receiver.on_credit(*to.link, head.tag);
        }
        break;
      case FrameType::kGoodbye:
        return Outcome::kGoodbye;
      default:  // from the network: any number may come
        return end("it sent a frame of unknown type");
    }
  }
}

std::optional<Incoming::Outcome> Incoming::begin_cell(const FrameHead& head, const Delivery& to) {
  if (!to.link) return Outcome::kRefused;
  if (head.bytes > to.landing_bytes) return end("it sent a cell larger than all landing memory");
  const LinkId link = *to.link;
  const std::span<std::byte> place = to.receiver.landing(link, head.tag);
  if (!place.empty() && head.bytes > place.size()) {
    return end("it sent a cell of " + std::to_string(head.bytes) + " bytes for a slot of " +
               std::to_string(place.size()));
  }
  payload_ = Payload{link, head.tag, place.empty() ? nullptr : place.data(), head.bytes};
  return std::nullopt;
}

void Incoming::take_buffered() {
  const size_t bytes = std::min<size_t>(payload_->left, end_ - begin_);
  if (payload_->to != nullptr && bytes > 0) {
    std::memcpy(payload_->to, buffer_.data() + begin_, bytes);
    payload_->to += bytes;
  }
  begin_ += bytes;
  payload_->left -= static_cast<uint32_t>(bytes);
}

Incoming::Outcome Incoming::end(std::string fault) {
  fault_ = std::move(fault);
  return Outcome::kEnded;
}

void Incoming::close(Poller& poller, bool reset) {
  dead = true;
  if (!fd_.valid()) return;
  if (reset) {
    const linger at_once{1, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  poller.forget(fd_.get());
  fd_.reset();
}

}  // namespace railyard::transport::tcp
