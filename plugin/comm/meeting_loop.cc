// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"

namespace railyard::comm {
namespace {

constexpr uint64_t kListener = 0, kStop = 1;
constexpr size_t kFailuresKept = 256;
constexpr int64_t kListenAgainMs = 100;

}  // namespace

Result<std::unique_ptr<MeetingServer::Loop>> MeetingServer::Loop::make(
    net::Listener listener, const Secret& key, const MeetingServerOptions& options) {
  std::unique_ptr<Loop> loop(new Loop(options));
  loop->listener_ = std::move(listener);
  loop->keys_ = {key};
  if (options.key) loop->keys_.push_back(*options.key);
  loop->epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  loop->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->epoll_.valid() || !loop->stop_.valid()) {
    return Status::system(errno, "cannot make a meeting server");
  }
  Status status = loop->watch(loop->listener_.fd.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
  if (status.ok()) status = loop->watch(loop->stop_.get(), kStop, EPOLLIN, EPOLL_CTL_ADD);
  if (!status.ok()) return status;
  return loop;
}

Status MeetingServer::Loop::watch(int fd, uint64_t number, uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return {};
  return Status::system(errno, "cannot watch a socket of the meeting server");
}

void MeetingServer::Loop::stop() { eventfd_write(stop_.get(), 1); }

void MeetingServer::Loop::admit(const Secret& key) {
  const std::lock_guard lock(mutex_);
  if (std::find(keys_.begin(), keys_.end(), key) == keys_.end()) keys_.push_back(key);
}

bool MeetingServer::Loop::admitted(const Secret& key) {
  const std::lock_guard lock(mutex_);
  bool found = false;
  for (const Secret& known : keys_) found |= net::equal_secrets(key, known);
  return found;
}

void MeetingServer::Loop::run() {
  std::array<epoll_event, 64> events;
  while (!stopping_) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), wait_ms());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kStop) {
        stopping_ = true;
      } else if (event.data.u64 == kListener) {
        accept_all();
      } else {
        const auto found = connections_.find(event.data.u64);
        if (found == connections_.end()) continue;
        if ((event.events & EPOLLOUT) != 0 && !flush(*found->second)) {
          drop(*found->second, "it cannot be written to");
          continue;
        }
        if ((event.events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) on_readable(*found->second);
      }
    }
    enforce_limits();
  }
}

void MeetingServer::Loop::accept_all() {
  while (true) {
    Result<UniqueFd> fd = net::accept_next(listener_.fd.get());
    if (!fd.ok()) {
      // Out of descriptors: waiting connections would keep the set ready, so look away for a while.
      log::warn("meeting point: %s", fd.status().message().c_str());
      [[maybe_unused]] const Status ignored =
          watch(listener_.fd.get(), kListener, 0, EPOLL_CTL_MOD);
      set_limit(listen_again_, kListenAgainMs);
      return;
    }
    if (!fd->valid()) return;
    auto connection = std::make_unique<Connection>();
    connection->fd = fd.take();
    connection->number = next_number_++;
    net::set_no_delay(connection->fd.get());
    net::set_keep_alive(connection->fd.get());
    set_limit(connection->limit, options_.hello_ms);
    if (!watch(connection->fd.get(), connection->number, EPOLLIN, EPOLL_CTL_ADD).ok()) continue;
    connections_.emplace(connection->number, std::move(connection));
  }
}

void MeetingServer::Loop::on_readable(Connection& connection) {
  std::array<std::byte, 16 * 1024> chunk;
  const ssize_t got = recv(connection.fd.get(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return drop(connection, "it was closed");
  if (connection.closing) return;  // what it says no longer matters
  connection.in.insert(connection.in.end(), chunk.begin(), chunk.begin() + got);
  if (!understand(connection)) drop(connection, "it does not speak as a rank should");
}

bool MeetingServer::Loop::understand(Connection& connection) {
  if (connection.meeting == nullptr && !greet(connection)) return false;
  while (connection.meeting != nullptr && connection.in.size() >= 4) {
    const uint32_t length = wire::Reader(connection.in).u32();
    if (length > kMaxPartBytes) return false;
    if (connection.in.size() < 4 + static_cast<size_t>(length)) break;
    const auto body = connection.in.begin() + 4;
    wire::Bytes part(body, body + length);
    connection.in.erase(connection.in.begin(), body + length);
    if (!take_part(connection, std::move(part))) return false;
  }
  return true;
}

/// Deals with the hello as far as it has come.
bool MeetingServer::Loop::greet(Connection& connection) {
  if (connection.in.size() < Hello::kHeadBytes) return true;
  const auto version = Hello::version_of(connection.in);
  if (!version) return false;
  if (*version != kProtocolVersion) {
    // Anybody can say this, key or not: once is enough for people.
    if (!told_version_) {
      log::warn(
          "a rank with a railyard of protocol version %u wanted to join; this one has version "
          "%u: install the same on all nodes",
          *version, kProtocolVersion);
    }
    told_version_ = true;
    Answer refusal;
    refusal.kind = Answer::Kind::kOtherVersion;
    connection.closing = true;
    queue(connection, std::make_shared<const wire::Bytes>(refusal.encode_frame()));
    return true;
  }
  if (connection.in.size() < Hello::kBytes) return true;
  const auto hello = Hello::decode(std::span(connection.in).first(Hello::kBytes));
  connection.in.erase(connection.in.begin(), connection.in.begin() + Hello::kBytes);
  if (!hello || !admitted(hello->key)) return false;
  connection.limit = Clock::time_point::max();
  return take_seat(connection, *hello);
}

bool MeetingServer::Loop::take_seat(Connection& connection, const Hello& hello) {
  const auto over = failed_.find(hello.meeting);
  auto found = meetings_.find(hello.meeting);
  if (found == meetings_.end() && over != failed_.end()) {
    connection.closing = true;
    set_limit(connection.limit, options_.hello_ms);
    queue(connection, over->second);
    return true;
  }
  if (found == meetings_.end()) {
    auto meeting = std::make_unique<Meeting>();
    meeting->name = hello.meeting;
    meeting->seats.resize(hello.ranks);
    meeting->parts.resize(hello.ranks);
    meeting->there.resize(hello.ranks);
    set_limit(meeting->limit, options_.come_ms);
    found = meetings_.emplace(hello.meeting, std::move(meeting)).first;
  }
  Meeting& meeting = *found->second;
  if (meeting.seats.size() != hello.ranks || meeting.seats[hello.rank] != nullptr ||
      meeting.gone.count(hello.rank) != 0) {
    log::trace("meeting point: rank %u of %u came twice or to the wrong meeting", hello.rank,
               hello.ranks);
    return false;
  }
  meeting.seats[hello.rank] = &connection;
  ++meeting.come;
  connection.meeting = &meeting;
  connection.rank = hello.rank;
  if (meeting.failure != nullptr) queue(connection, meeting.failure);
  return true;
}

bool MeetingServer::Loop::take_part(Connection& connection, wire::Bytes part) {
  Meeting& meeting = *connection.meeting;
  if (meeting.failure != nullptr) return true;  // it is told already
  if (meeting.there[connection.rank]) return false;
  if (meeting.parts_there == 0 && !meeting.first_round) {
    set_limit(meeting.limit, options_.round_ms);
  }
  meeting.there[connection.rank] = true;
  meeting.parts[connection.rank] = std::move(part);
  ++meeting.parts_there;
  settle(meeting);
  return true;
}

/// Ends the round if it can be ended.
void MeetingServer::Loop::settle(Meeting& meeting) {
  if (meeting.failure != nullptr) return;
  if (!meeting.gone.empty()) {
    if (meeting.parts_there > 0) {
      fail(meeting, Answer::Kind::kLost, {meeting.gone.begin(), meeting.gone.end()});
    }
    return;
  }
  if (meeting.parts_there < meeting.seats.size()) return;
  Answer answer;
  answer.parts.swap(meeting.parts);
  const auto frame = std::make_shared<const wire::Bytes>(answer.encode_frame());
  meeting.parts.resize(meeting.seats.size());
  meeting.there.assign(meeting.seats.size(), false);
  meeting.parts_there = 0;
  meeting.first_round = false;
  meeting.limit = Clock::time_point::max();
  for (Connection* seat : meeting.seats) queue(*seat, frame);
}

void MeetingServer::Loop::fail(Meeting& meeting, Answer::Kind kind, std::vector<uint32_t> ranks) {
  Answer answer;
  answer.kind = kind;
  answer.ranks = std::move(ranks);
  meeting.failure = std::make_shared<const wire::Bytes>(answer.encode_frame());
  meeting.limit = Clock::time_point::max();
  for (Connection* seat : meeting.seats) {
    if (seat != nullptr) queue(*seat, meeting.failure);
  }
}

void MeetingServer::Loop::queue(Connection& connection, std::shared_ptr<const wire::Bytes> frame) {
  connection.out.push_back(std::move(frame));
  // A broken connection is dropped when epoll reports it, not here, where its meeting is in use.
  flush(connection);
}

bool MeetingServer::Loop::flush(Connection& connection) {
  bool broken = false;
  while (!connection.out.empty()) {
    const wire::Bytes& frame = *connection.out.front();
    const ssize_t sent = send(connection.fd.get(), frame.data() + connection.out_offset,
                              frame.size() - connection.out_offset, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      broken = errno != EAGAIN && errno != EWOULDBLOCK;
      break;
    }
    connection.out_offset += static_cast<size_t>(sent);
    if (connection.out_offset < frame.size()) continue;
    connection.out.pop_front();
    connection.out_offset = 0;
  }
  if (connection.out.empty() && connection.closing) shutdown(connection.fd.get(), SHUT_WR);
  const bool watch_out = !connection.out.empty() && !broken;
  if (watch_out != connection.watches_out) {
    connection.watches_out = watch_out;
    const uint32_t events = watch_out ? EPOLLIN | EPOLLOUT : EPOLLIN;
    broken |= !watch(connection.fd.get(), connection.number, events, EPOLL_CTL_MOD).ok();
  }
  return !broken;
}

void MeetingServer::Loop::drop(Connection& connection, const char* why) {
  if (connection.meeting == nullptr && !connection.closing) {
    log::trace("meeting point: dropped a connection: %s", why);
  }
  leave(connection);
  // A forked child may hold a copy of the socket that would keep the set reporting it.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.fd.get(), nullptr);
  shutdown(connection.fd.get(), SHUT_RDWR);
  connections_.erase(connection.number);
}

void MeetingServer::Loop::leave(Connection& connection) {
  if (connection.meeting == nullptr) return;
  Meeting& meeting = *connection.meeting;
  meeting.seats[connection.rank] = nullptr;
  if (meeting.there[connection.rank]) {
    meeting.there[connection.rank] = false;
    --meeting.parts_there;
  }
  meeting.gone.insert(connection.rank);
  --meeting.come;
  settle(meeting);
  if (meeting.come > 0) return;
  remember(meeting);
  meetings_.erase(Secret(meeting.name));
}

void MeetingServer::Loop::remember(const Meeting& meeting) {
  if (meeting.failure == nullptr || failed_.count(meeting.name) != 0) return;
  failed_.emplace(meeting.name, meeting.failure);
  failed_order_.push_back(meeting.name);
  if (failed_order_.size() <= kFailuresKept) return;
  failed_.erase(failed_order_.front());
  failed_order_.pop_front();
}

void MeetingServer::Loop::set_limit(Clock::time_point& limit, int64_t ms) {
  limit = Clock::now() + std::chrono::milliseconds(ms);
  earliest_ = std::min(earliest_, limit);
}

int MeetingServer::Loop::wait_ms() const {
  if (earliest_ == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(earliest_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

void MeetingServer::Loop::enforce_limits() {
  const Clock::time_point now = Clock::now();
  if (now < earliest_) return;
  earliest_ = Clock::time_point::max();
  if (now >= listen_again_) {
    listen_again_ = Clock::time_point::max();
    if (!watch(listener_.fd.get(), kListener, EPOLLIN, EPOLL_CTL_MOD).ok()) {
      set_limit(listen_again_, kListenAgainMs);
    }
  }
  earliest_ = std::min(earliest_, listen_again_);
  for (auto& [name, meeting] : meetings_) {
    if (now < meeting->limit) {
      earliest_ = std::min(earliest_, meeting->limit);
      continue;
    }
    std::vector<uint32_t> missing;
    for (size_t rank = 0; rank < meeting->there.size(); ++rank) {
      if (!meeting->there[rank]) missing.push_back(static_cast<uint32_t>(rank));
    }
    fail(*meeting, Answer::Kind::kMissing, std::move(missing));
  }
  std::vector<Connection*> silent;
  for (auto& [number, connection] : connections_) {
    if (now >= connection->limit) {
      silent.push_back(connection.get());
    } else {
      earliest_ = std::min(earliest_, connection->limit);
    }
  }
  for (Connection* connection : silent) drop(*connection, "it did not say who it is in time");
}

}  // namespace railyard::comm
