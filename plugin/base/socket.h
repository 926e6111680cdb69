// SPDX-License-Identifier: Apache-2.0
//
// Sockets between processes: addresses, listening, connecting, whole messages with a deadline, and
// descriptors passed over unix sockets. Every descriptor made here is non-blocking and closed on
// exec. Nothing here logs; messages name the address, never what was sent.
//
// All functions are reentrant; a socket may be used by one thread at a time.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "base/wire.h"

namespace railyard::net {

/// A moment after which waiting is given up.
class Deadline {
 public:
  static Deadline never() { return Deadline(); }
  static Deadline after_ms(int64_t ms) {
    Deadline deadline;
    deadline.at_ = Clock::now() + std::chrono::milliseconds(ms);
    return deadline;
  }
  static Deadline after_s(int64_t s) { return after_ms(s * 1000); }

  bool passed() const { return at_ && Clock::now() >= *at_; }
  /// What is left, rounded up, for poll and epoll_wait: -1 without end, 0 when passed.
  int left_ms() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> at_;
};

/// An IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  /// Nothing for other families.
  static std::optional<SocketAddress> from(const sockaddr* address);
  /// A numeric address: "10.0.0.1" or "fd00::1".
  static Result<SocketAddress> parse(const std::string& host, uint16_t port);
  /// Where a socket is bound.
  static Result<SocketAddress> of_socket(int fd);

  /// AF_INET, AF_INET6 or, where nothing was set, AF_UNSPEC.
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  /// "10.0.0.1:4711", "[fd00::1]:4711".
  std::string text() const;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const;

  void encode(wire::Writer& out) const;
  /// Makes `in` fail on a family that is neither.
  static SocketAddress decode(wire::Reader& in);

 private:
  std::span<const std::byte> host_bytes() const;

  sockaddr_storage storage_{};
};

struct Listener {
  UniqueFd fd;
  SocketAddress address;  ///< with the port that was given
};

/// `address.port()` 0 picks a free port.
Result<Listener> listen_on(const SocketAddress& address);
/// The next connection, or an invalid descriptor if there is none at this moment. An error means
/// that the process has no descriptors or memory left; the listener is still good.
Result<UniqueFd> accept_next(int listener);

/// Begins to connect, from the address of `from` if that has one (its port is not used); writable
/// once the outcome is known, which connect_outcome() tells.
Result<UniqueFd> start_connect(const SocketAddress& to, const SocketAddress& from = {});
Status connect_outcome(int fd, const SocketAddress& to);
/// Both, waiting.
Result<UniqueFd> connect_to(const SocketAddress& to, Deadline deadline);
/// Small messages leave at once. For TCP sockets.
void set_no_delay(int fd);
/// How soon it is noticed, while nothing is sent, that the other machine is gone.
struct KeepAlive {
  int idle_s = 10, every_s = 5, tries = 4;
};
/// For TCP sockets.
void set_keep_alive(int fd, const KeepAlive& times = {});

/// Waits for `events` (POLLIN, POLLOUT); kRemoteError when the deadline passes first.
Status wait_for(int fd, short events, Deadline deadline);
/// All of it, or a Status; kRemoteError if the other end has closed.
Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline);
/// A message of its own: 32 bits of length, then the bytes. Longer ones than `limit` are refused.
Status send_frame(int fd, std::span<const std::byte> bytes, Deadline deadline);
Result<wire::Bytes> receive_frame(int fd, uint32_t limit, Deadline deadline);

/// Abstract unix sockets (no file to clean up), stream-oriented. `name` without the leading zero.
Result<UniqueFd> listen_on_unix(std::string_view name);
Result<UniqueFd> connect_to_unix(std::string_view name, Deadline deadline);
/// A frame with descriptors attached; they stay the caller's.
Status send_with_fds(int fd, std::span<const std::byte> bytes, std::span<const int> fds,
                     Deadline deadline);
struct FrameWithFds {
  wire::Bytes bytes;
  std::vector<UniqueFd> fds;
};
/// Descriptors beyond `max_fds` (at most 16) are closed and refused.
Result<FrameWithFds> receive_with_fds(int fd, uint32_t limit, size_t max_fds, Deadline deadline);

/// `count` bytes nobody can guess.
Result<wire::Bytes> random_bytes(size_t count);
/// Takes equally long wherever the difference is.
bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace railyard::net
