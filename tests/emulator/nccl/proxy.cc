// SPDX-License-Identifier: Apache-2.0
#include "proxy.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "environment.h"
#include "result.h"

namespace railyard::emulator {
namespace {

/// What an epoll entry stands for: kind, channel, and peer or descriptor.
enum Kind : uint64_t { kListener, kEvent, kOutgoing, kIncoming, kStranger, kProcess };

uint64_t tag(Kind kind, uint32_t channel, int id) {
  return kind << 56 | uint64_t{channel} << 48 | static_cast<uint32_t>(id);
}

bool would_block() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

Proxy::Proxy(const std::vector<Record>& table, int rank, UniqueFd listener, const RingBlock& inbox,
             const RingBlock& outbox)
    : table_(table),
      rank_(rank),
      listener_(std::move(listener)),
      inbox_(inbox),
      outbox_(outbox),
      relays_(number_variable("EMULATOR_NCCL_RELAY") == 1),
      peers_(table.size()) {}

ncclResult_t Proxy::start() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !event_.valid())
    return fail_system("creating the proxy of rank %d", rank_);
  watch(listener_.get(), tag(kListener, 0, 0));
  watch(event_.get(), tag(kEvent, 0, 0));
  for (size_t peer = 0; peer < table_.size(); ++peer) {
    const Record& record = table_[peer];
    if (record.host != table_[static_cast<size_t>(rank_)].host || record.pid == ::getpid())
      continue;
    UniqueFd& process = peers_[peer].process;
    process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, record.pid, 0)));
    if (!process.valid()) return fail_system("watching the process of rank %zu", peer);
    watch(process.get(), tag(kProcess, 0, static_cast<int>(peer)));
  }
  thread_ = std::thread([this] { run(); });
  return ncclSuccess;
}

void Proxy::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wake();
  thread_.join();
  strangers_.clear();
  peers_.clear();
  listener_.reset();
}

void Proxy::wake() {
  if (!sleeping_.exchange(false)) return;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(event_.get(), &one, sizeof one);
}

void Proxy::want(int peer, Channel channel) {
  State none = State::kNone;
  auto& state = peers_[static_cast<size_t>(peer)].outgoing[static_cast<size_t>(channel)].state;
  if (!state.compare_exchange_strong(none, State::kWanted)) return;
  wants_ = true;
  wake();
}

bool Proxy::sending_ended(int peer, Channel channel) const {
  const Peer& p = peers_[static_cast<size_t>(peer)];
  return p.outgoing[static_cast<size_t>(channel)].state.load() == State::kEnded;
}

bool Proxy::receiving_ended(int peer, Channel channel) const {
  const Peer& p = peers_[static_cast<size_t>(peer)];
  bool unreachable = p.unreachable.load();  // before the state: see settle_refused
  State state = p.incoming[static_cast<size_t>(channel)].state.load();
  return state == State::kEnded || (unreachable && state == State::kNone);
}

bool Proxy::drained() const {
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    for (uint32_t channel = 0; channel < kChannels; ++channel) {
      State state = peers_[peer].outgoing[channel].state.load();
      if (state == State::kNone || state == State::kEnded) continue;
      if (!out(static_cast<int>(peer), channel).empty()) return false;
    }
  }
  return true;
}

Ring Proxy::out(int peer, uint32_t channel) const {
  return outbox_.ring(peer, static_cast<Channel>(channel));
}

Ring Proxy::in(int peer, uint32_t channel) const {
  return inbox_.ring(peer, static_cast<Channel>(channel));
}

void Proxy::watch(int fd, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = tag;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Proxy::run() {
  epoll_event events[64];
  while (!stop_) {
    sleeping_ = true;
    int n = ::epoll_wait(epoll_.get(), events, 64, busy() ? 0 : -1);
    sleeping_ = false;
    for (int i = 0; i < n; ++i) handle_event(events[i].data.u64, events[i].events);
    if (wants_.exchange(false)) {
      for (size_t peer = 0; peer < peers_.size(); ++peer) {
        for (uint32_t channel = 0; channel < kChannels; ++channel) {
          connect(static_cast<int>(peer), channel);
        }
      }
    }
    if (std::exchange(incoming_waits_, false)) accept_all();
    settle_refused();
    // Ending a flow removes it from its list: go through copies.
    for (auto [peer, channel] : std::vector(active_out_)) push(peer, channel);
    for (auto [peer, channel] : std::vector(active_in_)) pull(peer, channel);
  }
}

bool Proxy::busy() const {
  if (stop_ || wants_ || incoming_waits_) return true;
  for (auto [peer, channel] : active_out_) {
    const Outgoing& flow = peers_[static_cast<size_t>(peer)].outgoing[channel];
    if (flow.writable && !out(peer, channel).empty()) return true;
  }
  for (auto [peer, channel] : active_in_) {
    const Incoming& flow = peers_[static_cast<size_t>(peer)].incoming[channel];
    if (flow.readable && !in(peer, channel).full()) return true;
  }
  return false;
}

void Proxy::handle_event(uint64_t tag, uint32_t events) {
  auto kind = static_cast<Kind>(tag >> 56);
  auto channel = static_cast<uint32_t>(tag >> 48 & 0xff);
  auto id = static_cast<int>(tag & 0xffffffff);
  bool gone = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  switch (kind) {
    case kListener:
      incoming_waits_ = true;
      return;
    case kEvent: {
      uint64_t count;
      [[maybe_unused]] ssize_t n = ::read(event_.get(), &count, sizeof count);
      return;
    }
    case kOutgoing: {
      Outgoing& flow = peers_[static_cast<size_t>(id)].outgoing[channel];
      if (gone) {
        end_outgoing(id, channel);
      } else if (flow.state.load() == State::kConnecting) {
        greet(id, &flow);
      } else {
        flow.writable = true;
      }
      return;
    }
    case kIncoming: {
      Incoming& flow = peers_[static_cast<size_t>(id)].incoming[channel];
      flow.readable = true;
      flow.hung_up = flow.hung_up || gone;
      return;
    }
    case kStranger: {
      auto found = strangers_.find(id);
      if (found == strangers_.end()) return;
      if (!identify(&found->second)) strangers_.erase(found);
      return;
    }
    case kProcess:
      peers_[static_cast<size_t>(id)].dead = true;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peers_[static_cast<size_t>(id)].process.get(),
                  nullptr);
      inbox_.bell().ring();
  }
}

void Proxy::accept_all() {
  for (;;) {
    int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    Stranger& stranger = strangers_[fd];
    stranger.fd = UniqueFd(fd);
    watch(fd, tag(kStranger, 0, fd));
  }
}

/// Reads what a connection says of itself. False once nothing more is to be heard from it as a
/// stranger: it was adopted, or is none of ours.
bool Proxy::identify(Stranger* stranger) {
  char* into = reinterpret_cast<char*>(&stranger->hello) + stranger->bytes;
  ssize_t n = ::recv(stranger->fd.get(), into, sizeof(Hello) - stranger->bytes, 0);
  if (n < 0 && would_block()) return true;
  if (n <= 0) return false;
  stranger->bytes += static_cast<size_t>(n);
  if (stranger->bytes < sizeof(Hello)) return true;
  const Hello& hello = stranger->hello;
  bool ours = hello.key == table_[static_cast<size_t>(rank_)].key && hello.rank >= 0 &&
              static_cast<size_t>(hello.rank) < peers_.size() &&
              static_cast<uint32_t>(hello.channel) < kChannels;
  if (ours) adopt(stranger);
  return false;
}

void Proxy::adopt(Stranger* stranger) {
  int peer = stranger->hello.rank;
  auto channel = static_cast<uint32_t>(stranger->hello.channel);
  Incoming& flow = peers_[static_cast<size_t>(peer)].incoming[channel];
  if (flow.state.load() != State::kNone) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.u64 = tag(kIncoming, channel, peer);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stranger->fd.get(), &event);
  flow.fd = std::move(stranger->fd);
  flow.readable = true;
  flow.state = State::kOpen;
  active_in_.emplace_back(peer, channel);
}

int Proxy::nic_rank(int peer) const {
  if (!relays_) return rank_;
  const auto node_of = [this](int rank) {
    std::vector<int> ranks;
    for (size_t other = 0; other < table_.size(); ++other) {
      if (table_[other].host == table_[static_cast<size_t>(rank)].host) {
        ranks.push_back(static_cast<int>(other));
      }
    }
    return ranks;
  };
  const std::vector<int> theirs = node_of(peer), ours = node_of(rank_);
  const auto rail =
      static_cast<size_t>(std::find(theirs.begin(), theirs.end(), peer) - theirs.begin());
  return ours[rail % ours.size()];
}

void Proxy::connect(int peer, uint32_t channel) {
  Outgoing& flow = peers_[static_cast<size_t>(peer)].outgoing[channel];
  if (flow.state.load() != State::kWanted) return;
  const bool control = static_cast<Channel>(channel) == Channel::kControl;
  const Record& from = table_[static_cast<size_t>(control ? rank_ : nic_rank(peer))];
  const Record& to = table_[static_cast<size_t>(peer)];
  if (start_connect(control ? to.control : to.address, &flow.fd,
                    control ? &from.control : &from.address) != ncclSuccess) {
    end_outgoing(peer, channel);
    return;
  }
  flow.state = State::kConnecting;
  epoll_event event{};
  event.events = EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = tag(kOutgoing, channel, peer);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, flow.fd.get(), &event);
  active_out_.emplace_back(peer, channel);
}

void Proxy::greet(int peer, Outgoing* flow) {
  auto channel = static_cast<uint32_t>(flow - peers_[static_cast<size_t>(peer)].outgoing);
  Hello hello{table_[static_cast<size_t>(peer)].key, rank_, static_cast<Channel>(channel)};
  // The socket is new and its buffer empty: this fits or the peer is gone.
  if (::send(flow->fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
    end_outgoing(peer, channel);
    return;
  }
  flow->state = State::kOpen;
  flow->writable = true;
}

void Proxy::push(int peer, uint32_t channel) {
  Outgoing& flow = peers_[static_cast<size_t>(peer)].outgoing[channel];
  Ring ring = out(peer, channel);
  bool moved = false;
  while (flow.writable && !ring.empty()) {
    uint64_t before = ring.released();
    if (!push_some(ring, &flow)) {
      end_outgoing(peer, channel);
      return;
    }
    moved = moved || ring.released() != before;
  }
  if (moved) inbox_.bell().ring();
}

/// Writes as much of the ring as the socket takes; false if the connection is gone.
bool Proxy::push_some(const Ring& ring, Outgoing* flow) {
  Header headers[kSlots];
  iovec parts[2 * kSlots];
  uint64_t chunks = std::min(ring.used(), kSlots);
  uint64_t total = 0;
  for (uint64_t i = 0; i < chunks; ++i) {
    Slot slot = ring.slot(i);
    headers[i] = Header{slot.message_bytes, slot.bytes};
    parts[2 * i] = {&headers[i], sizeof(Header)};
    parts[2 * i + 1] = {const_cast<char*>(ring.data(i)), slot.bytes};
    total += sizeof(Header) + slot.bytes;
  }
  uint64_t skip = flow->sent;
  for (iovec* part = parts; skip > 0; ++part) {
    uint64_t n = std::min<uint64_t>(skip, part->iov_len);
    part->iov_base = static_cast<char*>(part->iov_base) + n;
    part->iov_len -= n;
    skip -= n;
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2 * chunks;
  ssize_t n = ::sendmsg(flow->fd.get(), &message, MSG_NOSIGNAL);
  if (n < 0) {
    flow->writable = errno == EINTR;
    return would_block();
  }
  uint64_t sent = flow->sent + static_cast<uint64_t>(n);
  flow->writable = sent == total;  // a full buffer tells when there is room again
  uint64_t done = 0;
  while (done < chunks && sent >= sizeof(Header) + headers[done].bytes) {
    sent -= sizeof(Header) + headers[done++].bytes;
  }
  flow->sent = sent;
  ring.release(done);
  return true;
}

void Proxy::pull(int peer, uint32_t channel) {
  Incoming& flow = peers_[static_cast<size_t>(peer)].incoming[channel];
  Ring ring = in(peer, channel);
  uint64_t before = ring.published();
  bool open = true;
  while (open && flow.readable && !ring.full()) open = pull_some(ring, &flow);
  if (!open) {
    flow.fd.reset();
    flow.state = State::kEnded;
    std::erase(active_in_, std::pair(peer, channel));
  }
  if (!open || ring.published() != before) inbox_.bell().ring();
}

/// Reads into the next slot, and in the same call the header of what follows; false at the end of
/// the connection. REQUIRES: !ring.full().
bool Proxy::pull_some(const Ring& ring, Incoming* flow) {
  if (flow->header_bytes == sizeof(Header) && flow->header.bytes == 0) {
    ring.publish(Slot{flow->header.message_bytes, 0});
    flow->header_bytes = 0;
    return true;
  }
  iovec parts[2];
  int count = 0;
  Header next;
  uint64_t body = 0;
  if (flow->header_bytes < sizeof(Header)) {
    parts[count++] = {reinterpret_cast<char*>(&flow->header) + flow->header_bytes,
                      sizeof(Header) - flow->header_bytes};
  } else {
    body = flow->header.bytes - flow->body_bytes;
    parts[count++] = {ring.space() + flow->body_bytes, body};
    parts[count++] = {&next, sizeof next};
  }
  ssize_t n = ::readv(flow->fd.get(), parts, count);
  if (n == 0) return false;
  if (n < 0) {
    flow->readable = errno == EINTR;
    return would_block();
  }
  auto got = static_cast<uint64_t>(n);
  uint64_t asked = parts[0].iov_len + (count == 2 ? parts[1].iov_len : 0);
  // Less than asked for: the next bytes announce themselves. Not so the end of the stream.
  flow->readable = got == asked || flow->hung_up;
  if (count == 1) {
    flow->header_bytes += got;
  } else {
    uint64_t taken = std::min(got, body);
    flow->body_bytes += taken;
    if (taken == body) {
      ring.publish(Slot{flow->header.message_bytes, flow->header.bytes});
      flow->header = next;
      flow->header_bytes = got - taken;
      flow->body_bytes = 0;
    }
  }
  if (flow->header_bytes < sizeof(Header)) return true;
  // A header without a body needs no more bytes: come again, even if none arrive.
  if (flow->header.bytes == 0) flow->readable = true;
  return flow->header.bytes <= kChunkBytes;  // more is not of our ranks
}

void Proxy::end_outgoing(int peer, uint32_t channel) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  Outgoing& flow = p.outgoing[channel];
  flow.fd.reset();
  flow.writable = false;
  flow.state = State::kEnded;
  p.refused = true;
  incoming_waits_ = true;
  std::erase(active_out_, std::pair(peer, channel));
  inbox_.bell().ring();
}

/// A peer that has gone may have connected and sent before: it counts as unreachable only when no
/// connection is left that could be its.
void Proxy::settle_refused() {
  if (incoming_waits_ || !strangers_.empty()) return;
  for (Peer& peer : peers_) {
    if (!peer.refused || peer.unreachable.load()) continue;
    peer.unreachable = true;
    inbox_.bell().ring();
  }
}

}  // namespace railyard::emulator
