// SPDX-License-Identifier: Apache-2.0
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <chrono>
#include <sstream>
#include <vector>

#include "environment.h"
#include "result.h"

namespace railyard::emulator {
namespace {

constexpr int kRetryMs = 20;
constexpr const char* kInterfaces = "NCCL_SOCKET_IFNAME";
constexpr const char* kDataInterfaces = "EMULATOR_NET_IFNAME";

/// NCCL's rules: '^' first excludes, then '=' asks for whole names instead of beginnings.
bool name_matches(const std::string& name, std::string rule) {
  bool exclude = rule.starts_with('^');
  if (exclude) rule.erase(0, 1);
  bool exact = rule.starts_with('=');
  if (exact) rule.erase(0, 1);
  bool found = false;
  std::istringstream entries(rule);
  for (std::string entry; std::getline(entries, entry, ',');) {
    found = found || (exact ? name == entry : !entry.empty() && name.starts_with(entry));
  }
  return found != exclude;
}

std::vector<sockaddr_in> matching_interfaces(const std::string& rule) {
  std::vector<sockaddr_in> result;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return result;
  for (ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_RUNNING) == 0 || !name_matches(entry->ifa_name, rule)) continue;
    sockaddr_in address;
    ::memcpy(&address, entry->ifa_addr, sizeof address);
    result.push_back(address);
  }
  ::freeifaddrs(all);
  return result;
}

const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

ncclResult_t wait_for(int fd, short events, int cancel, int timeout_ms) {
  pollfd fds[2] = {{fd, events, 0}, {cancel, POLLIN, 0}};
  for (;;) {
    int n = ::poll(fds, 2, timeout_ms);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_system("poll");
    if (fds[1].revents != 0) return fail(ncclInternalError, "the communicator was aborted");
    return ncclSuccess;
  }
}

/// 0 once connected, else an errno.
int finish_connect(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

bool is_set(const char* rule) { return rule != nullptr && ::strlen(rule) > 1; }

/// The address of the interface for `device` among those that a variable names; loopback if it
/// names none.
ncclResult_t local_address(const char* name, int device, sockaddr_in* address) {
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const char* rule = variable(name);
  if (!is_set(rule)) return ncclSuccess;
  std::vector<sockaddr_in> interfaces = matching_interfaces(rule);
  if (interfaces.empty()) {
    return fail(ncclInvalidUsage, "%s=%s names no running IPv4 interface", name, rule);
  }
  address->sin_addr = interfaces[static_cast<size_t>(device) % interfaces.size()].sin_addr;
  return ncclSuccess;
}

}  // namespace

bool make_key(Key* key) { return ::getrandom(key, sizeof *key, 0) == sizeof *key; }

std::string to_text(const sockaddr_in& address) {
  char host[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
  return std::string(host) + ":" + std::to_string(ntohs(address.sin_port));
}

ncclResult_t data_address(int device, sockaddr_in* address) {
  return is_set(variable(kDataInterfaces)) ? local_address(kDataInterfaces, device, address)
                                           : local_address(kInterfaces, device, address);
}

ncclResult_t meeting_address(sockaddr_in* address) {
  return local_address(kInterfaces, 0, address);
}

ncclResult_t parse_address(const std::string& text, sockaddr_in* address) {
  size_t colon = text.rfind(':');
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (colon == std::string::npos ||
      ::getaddrinfo(text.substr(0, colon).c_str(), text.substr(colon + 1).c_str(), &hints,
                    &found) != 0) {
    return fail(ncclInvalidArgument, "%s is no address: write host:port", text.c_str());
  }
  ::memcpy(address, found->ai_addr, sizeof *address);
  ::freeaddrinfo(found);
  return ncclSuccess;
}

ncclResult_t listen_at(sockaddr_in* address, UniqueFd* fd) {
  *fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd->valid()) return fail_system("socket");
  int on = 1;
  ::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t length = sizeof *address;
  if (::bind(fd->get(), generic(*address), length) != 0 || ::listen(fd->get(), SOMAXCONN) != 0 ||
      ::getsockname(fd->get(), reinterpret_cast<sockaddr*>(address), &length) != 0) {
    return fail_system("listening at %s", to_text(*address).c_str());
  }
  return ncclSuccess;
}

ncclResult_t start_connect(const sockaddr_in& address, UniqueFd* fd, const sockaddr_in* from) {
  *fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd->valid()) return fail_system("socket");
  set_no_delay(fd->get());
  if (from != nullptr) {
    sockaddr_in source = *from;
    source.sin_port = 0;
    const int on = 1;
    ::setsockopt(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(fd->get(), generic(source), sizeof source) != 0) {
      return fail_system("binding to %s", to_text(source).c_str());
    }
  }
  if (::connect(fd->get(), generic(address), sizeof address) != 0 && errno != EINPROGRESS) {
    return fail_system("connecting to %s", to_text(address).c_str());
  }
  return ncclSuccess;
}

ncclResult_t connect_to(const sockaddr_in& address, int patience_s, int cancel, UniqueFd* fd) {
  using Clock = std::chrono::steady_clock;
  auto end = Clock::now() + std::chrono::seconds(patience_s);
  for (;;) {
    ncclResult_t result = start_connect(address, fd);
    if (result == ncclSuccess) result = wait_for(fd->get(), POLLOUT, cancel, -1);
    if (result == ncclInternalError) return result;
    int error = result == ncclSuccess ? finish_connect(fd->get()) : errno;
    if (error == 0) return ncclSuccess;
    if (error != ECONNREFUSED || Clock::now() >= end) {
      return fail(ncclSystemError, "connecting to %s: %s", to_text(address).c_str(),
                  ::strerror(error));
    }
    result = wait_readable(-1, cancel, kRetryMs);
    if (result != ncclSuccess) return result;
  }
}

ncclResult_t send_all(int fd, const void* data, size_t bytes, int cancel) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t n = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (n >= 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      ncclResult_t result = wait_for(fd, POLLOUT, cancel, -1);
      if (result != ncclSuccess) return result;
    } else if (errno != EINTR) {
      return fail(ncclRemoteError, "sending to a peer: %s", ::strerror(errno));
    }
  }
  return ncclSuccess;
}

ncclResult_t receive_all(int fd, void* data, size_t bytes, int cancel) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    ncclResult_t result = wait_readable(fd, cancel);
    if (result != ncclSuccess) return result;
    ssize_t n = ::recv(fd, at, bytes, MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (n == 0) {
      return fail(ncclRemoteError, "a peer closed the connection during set-up");
    } else if (errno != EINTR && errno != EAGAIN) {
      return fail(ncclRemoteError, "receiving from a peer: %s", ::strerror(errno));
    }
  }
  return ncclSuccess;
}

ncclResult_t wait_readable(int fd, int cancel, int timeout_ms) {
  return wait_for(fd, POLLIN, cancel, timeout_ms);
}

void set_no_delay(int fd) {
  int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace railyard::emulator
