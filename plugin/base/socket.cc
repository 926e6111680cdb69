// SPDX-License-Identifier: Apache-2.0
#include "base/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <climits>

namespace railyard::net {

int Deadline::left_ms() const {
  if (!at_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*at_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

std::optional<SocketAddress> SocketAddress::from(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  SocketAddress copy;
  if (address->sa_family == AF_INET) {
    std::memcpy(&copy.storage_, address, sizeof(sockaddr_in));
  } else if (address->sa_family == AF_INET6) {
    std::memcpy(&copy.storage_, address, sizeof(sockaddr_in6));
  } else {
    return std::nullopt;
  }
  return copy;
}

Result<SocketAddress> SocketAddress::parse(const std::string& host, uint16_t port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage_);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage_);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
  } else {
    return Status::error(Code::kInvalidArgument, "%s is not a numeric IPv4 or IPv6 address",
                         host.c_str());
  }
  address.set_port(port);
  return address;
}

Result<SocketAddress> SocketAddress::of_socket(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return Status::system(errno, "cannot read the address of a socket");
  }
  const auto address = from(reinterpret_cast<const sockaddr*>(&storage));
  if (!address) return Status::error(Code::kInternal, "a socket is neither IPv4 nor IPv6");
  return *address;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  }
}

std::span<const std::byte> SocketAddress::host_bytes() const {
  if (family() == AF_INET) {
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, 1));
  }
  return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr, 1));
}

std::string SocketAddress::text() const {
  if (family() == AF_UNSPEC) return "no address";
  char host[INET6_ADDRSTRLEN] = {};
  inet_ntop(family(), host_bytes().data(), host, sizeof host);
  const std::string port_text = std::to_string(port());
  return family() == AF_INET ? std::string(host) + ":" + port_text
                             : "[" + std::string(host) + "]:" + port_text;
}

socklen_t SocketAddress::length() const {
  return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

void SocketAddress::encode(wire::Writer& out) const {
  out.u8(family() == AF_INET ? 4 : 6);
  out.u16(port());
  out.raw(host_bytes());
}

SocketAddress SocketAddress::decode(wire::Reader& in) {
  const uint8_t version = in.u8();
  const uint16_t port = in.u16();
  SocketAddress address;
  if (version == 4) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage_);
    v4->sin_family = AF_INET;
    const auto host = in.raw(sizeof v4->sin_addr);
    if (in.ok()) std::memcpy(&v4->sin_addr, host.data(), host.size());
  } else if (version == 6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage_);
    v6->sin6_family = AF_INET6;
    const auto host = in.raw(sizeof v6->sin6_addr);
    if (in.ok()) std::memcpy(&v6->sin6_addr, host.data(), host.size());
  } else {
    in.fail();
    return address;
  }
  address.set_port(port);
  return address;
}

namespace {

Result<UniqueFd> new_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::system(errno, "cannot make a socket");
  return fd;
}

}  // namespace

Result<Listener> listen_on(const SocketAddress& address) {
  Result<UniqueFd> fd = new_socket(address.family());
  if (!fd.ok()) return fd.status();
  const int on = 1;
  setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd->get(), address.get(), address.length()) != 0 ||
      ::listen(fd->get(), SOMAXCONN) != 0) {
    return Status::system(errno, "cannot listen on %s", address.text().c_str());
  }
  Result<SocketAddress> bound = SocketAddress::of_socket(fd->get());
  if (!bound.ok()) return bound.status();
  return Listener{fd.take(), *bound};
}

Result<UniqueFd> accept_next(int listener) {
  while (true) {
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid() || errno == EAGAIN || errno == EWOULDBLOCK) return fd;
    // These three are about the connection that was to be accepted, which is no more.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    return Status::system(errno, "cannot accept a connection");
  }
}

Result<UniqueFd> start_connect(const SocketAddress& to, const SocketAddress& from) {
  if (to.family() == AF_UNSPEC) {
    return Status::error(Code::kInvalidArgument, "there is no address to connect to");
  }
  Result<UniqueFd> fd = new_socket(to.family());
  if (!fd.ok()) return fd.status();
  if (from.family() == to.family()) {
    SocketAddress source = from;
    source.set_port(0);
    const int on = 1;  // the port is chosen with the peer in view, so there is no lack of them
    setsockopt(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd->get(), source.get(), source.length()) != 0) {
      return Status::system(errno, "cannot send from %s", source.text().c_str());
    }
  }
  if (::connect(fd->get(), to.get(), to.length()) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return Status::error(Code::kRemoteError, "cannot connect to %s: %s", to.text().c_str(),
                         std::strerror(errno));
  }
  return fd;
}

Status connect_outcome(int fd, const SocketAddress& to) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0) return {};
  return Status::error(Code::kRemoteError, "cannot connect to %s: %s", to.text().c_str(),
                       std::strerror(error));
}

Result<UniqueFd> connect_to(const SocketAddress& to, Deadline deadline) {
  Result<UniqueFd> fd = start_connect(to);
  if (!fd.ok()) return fd;
  if (!wait_for(fd->get(), POLLOUT, deadline).ok()) {
    return Status::error(Code::kRemoteError, "no answer from %s in time", to.text().c_str());
  }
  const Status outcome = connect_outcome(fd->get(), to);
  if (!outcome.ok()) return outcome;
  return fd;
}

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void set_keep_alive(int fd, const KeepAlive& times) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &times.idle_s, sizeof times.idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &times.every_s, sizeof times.every_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times.tries, sizeof times.tries);
}

Status wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, deadline.left_ms());
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::system(errno, "cannot wait for a socket");
    if (deadline.passed()) return Status::error(Code::kRemoteError, "no answer in time");
  }
}

namespace {

Status closed_by_peer(int error) {
  if (error == 0 || error == EPIPE || error == ECONNRESET) {
    return Status::error(Code::kRemoteError, "the other end closed the connection");
  }
  return Status::error(Code::kRemoteError, "the connection failed: %s", std::strerror(error));
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (would_block(errno)) {
      const Status ready = wait_for(fd, POLLOUT, deadline);
      if (!ready.ok()) return ready;
    } else if (errno != EINTR) {
      return closed_by_peer(errno);
    }
  }
  return {};
}

Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got < 0 && would_block(errno)) {
      const Status ready = wait_for(fd, POLLIN, deadline);
      if (!ready.ok()) return ready;
    } else if (got == 0 || errno != EINTR) {
      return closed_by_peer(got == 0 ? 0 : errno);
    }
  }
  return {};
}

namespace {

Result<wire::Bytes> receive_body(int fd, std::span<const std::byte> head, uint32_t limit,
                                 Deadline deadline) {
  const uint32_t length = wire::Reader(head).u32();
  if (length > limit) {
    return Status::error(Code::kRemoteError, "a message of %u bytes where at most %u are expected",
                         length, limit);
  }
  wire::Bytes body(length);
  const Status got = receive_all(fd, body, deadline);
  if (!got.ok()) return got;
  return body;
}

}  // namespace

Status send_frame(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  wire::Writer frame;
  frame.blob(bytes);
  return send_all(fd, frame.bytes(), deadline);
}

Result<wire::Bytes> receive_frame(int fd, uint32_t limit, Deadline deadline) {
  std::byte head[4];
  const Status got = receive_all(fd, head, deadline);
  if (!got.ok()) return got;
  return receive_body(fd, head, limit, deadline);
}

Result<wire::Bytes> random_bytes(size_t count) {
  wire::Bytes bytes(count);
  size_t filled = 0;
  while (filled < count) {
    const ssize_t got = getrandom(bytes.data() + filled, count - filled, 0);
    if (got > 0) {
      filled += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      return Status::system(errno, "cannot read random bytes");
    }
  }
  return bytes;
}

bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace railyard::net
