// SPDX-License-Identifier: Apache-2.0
// Rank 0's store and its clients.
#include "store.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_check.h"
#include "error.h"

namespace moe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint32_t kMark = 0x6d6f6531;  // "moe1"
constexpr std::uint32_t kWelcome = 1;
constexpr std::uint32_t kOtherSize = 2;
constexpr milliseconds kPatience{5000};  // with one connection, once it is made
constexpr milliseconds kPause{100};      // between two tries

struct Hello {
  std::uint32_t mark, ranks, rank;  // in network byte order
};

struct Answer {
  std::uint32_t mark, verdict, ranks;  // in network byte order
  ncclUniqueId id;
};

class Socket final {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

void limit_waits(const Socket& socket) {
  timeval limit{};
  limit.tv_sec = kPatience.count() / 1000;
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

template <typename T>
bool send_all(const Socket& socket, const T& value) {
  const char* next = reinterpret_cast<const char*>(&value);
  const char* end = next + sizeof(value);
  while (next < end) {
    const ssize_t sent =
        send(socket.fd(), next, static_cast<std::size_t>(end - next), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
  }
  return true;
}

template <typename T>
std::optional<T> receive_all(const Socket& socket) {
  T value{};
  return recv(socket.fd(), &value, sizeof(value), MSG_WAITALL) == sizeof(value)
             ? std::optional<T>(value)
             : std::nullopt;
}

// Listens on all addresses, of IPv6 and IPv4 where the machine has both.
Socket listen_on(std::uint16_t port) {
  const int six = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Socket listener(six >= 0 ? six : ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const int off = 0;
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in6 address6{};
  sockaddr_in address4{};
  const sockaddr* address = reinterpret_cast<const sockaddr*>(&address4);
  socklen_t size = sizeof(address4);
  if (six >= 0) {
    setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    address6.sin6_family = AF_INET6;
    address6.sin6_port = htons(port);
    address = reinterpret_cast<const sockaddr*>(&address6);
    size = sizeof(address6);
  } else {
    address4.sin_family = AF_INET;
    address4.sin_port = htons(port);
  }
  if (bind(listener.fd(), address, size) != 0 || listen(listener.fd(), SOMAXCONN) != 0) {
    fail_usage("cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno) +
               "; choose another for all ranks with MASTER_PORT or --store-port");
  }
  return listener;
}

// Answers one connection; gives the rank that has its id now, if it is one of ours.
std::optional<std::uint32_t> answer(const Socket& client, const ncclUniqueId& id, int ranks) {
  limit_waits(client);
  const std::optional<Hello> hello = receive_all<Hello>(client);
  if (!hello || hello->mark != htonl(kMark)) return std::nullopt;
  const auto mine = static_cast<std::uint32_t>(ranks);
  const std::uint32_t theirs = ntohl(hello->ranks);
  const std::uint32_t rank = ntohl(hello->rank);
  const bool same = theirs == mine;
  Answer reply{htonl(kMark), htonl(same ? kWelcome : kOtherSize), htonl(mine), {}};
  if (same) reply.id = id;
  const bool arrived = send_all(client, reply);
  if (!same) {
    fail_usage("rank " + std::to_string(rank) + " was told that the job has " +
               std::to_string(theirs) + " ranks, this one " + std::to_string(mine) +
               ": do two jobs share a port? Choose another with MASTER_PORT or --store-port");
  }
  if (!arrived || rank >= mine) return std::nullopt;
  return rank;
}

std::optional<Socket> connect_to(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) continue;
    limit_waits(socket);  // bounds connect as well
    if (connect(socket.fd(), one->ai_addr, one->ai_addrlen) == 0) return socket;
  }
  return std::nullopt;
}

}  // namespace

void serve_id(const ncclUniqueId& id, std::uint16_t port, int ranks, std::chrono::seconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  std::vector<bool> served(static_cast<std::size_t>(ranks), false);
  served[0] = true;
  const Socket listener = listen_on(port);
  for (auto missing = std::find(served.begin(), served.end(), false); missing != served.end();
       missing = std::find(served.begin(), served.end(), false)) {
    pollfd ready{listener.fd(), POLLIN, 0};
    const int polled = poll(&ready, 1, left_ms(deadline));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) {
      fail("rank " + std::to_string(missing - served.begin()) + " (and " +
           std::to_string(std::count(served.begin(), served.end(), false) - 1) +
           " more) did not come within " + std::to_string(timeout.count()) +
           " s: see whether all ranks were started and reach this node, or raise --join-timeout");
    }
    const Socket client(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.fd() < 0) continue;
    if (const auto rank = answer(client, id, ranks)) served[*rank] = true;
  }
}

ncclUniqueId fetch_id(const std::string& address, std::uint16_t port, int rank, int ranks,
                      std::chrono::seconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::string where = address + " port " + std::to_string(port);
  const Hello hello{htonl(kMark), htonl(static_cast<std::uint32_t>(ranks)),
                    htonl(static_cast<std::uint32_t>(rank))};
  while (true) {
    if (const auto server = connect_to(address, port); server && send_all(*server, hello)) {
      const std::optional<Answer> reply = receive_all<Answer>(*server);
      if (reply && reply->mark == htonl(kMark)) {
        if (ntohl(reply->verdict) == kWelcome) return reply->id;
        fail_usage("rank 0 at " + where + " says its job has " +
                   std::to_string(ntohl(reply->ranks)) + " ranks, but this one has " +
                   std::to_string(ranks) + ": do two jobs share a port?");
      }
    }
    if (Clock::now() >= deadline) {
      fail("rank 0 did not answer at " + where + " within " + std::to_string(timeout.count()) +
           " s: check MASTER_ADDR and MASTER_PORT, and that rank 0 is running");
    }
    std::this_thread::sleep_for(kPause);
  }
}

ncclUniqueId meet(const LaunchEnvironment& launch, std::chrono::seconds timeout) {
  if (launch.rank != 0) {
    return fetch_id(launch.master_address, launch.store_port, launch.rank, launch.ranks, timeout);
  }
  ncclUniqueId id{};
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (launch.ranks > 1) serve_id(id, launch.store_port, launch.ranks, timeout);
  return id;
}

}  // namespace moe
