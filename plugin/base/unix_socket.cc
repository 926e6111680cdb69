// SPDX-License-Identifier: Apache-2.0
//
// The part of socket.h that deals with unix sockets and passed descriptors.
#include <fcntl.h>
#include <poll.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/socket.h"

namespace railyard::net {
namespace {

constexpr size_t kMaxFds = 16;

struct UnixName {
  sockaddr_un address{};
  socklen_t length = 0;
};

Result<UnixName> abstract_name(std::string_view name) {
  UnixName result;
  if (name.empty() || name.size() + 1 > sizeof result.address.sun_path) {
    return Status::error(Code::kInvalidArgument, "a unix socket name of %zu bytes", name.size());
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

const sockaddr* generic(const UnixName& name) {
  return reinterpret_cast<const sockaddr*>(&name.address);
}

/// Takes every descriptor out of the control data, so that none leaks whatever comes next.
void collect_fds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

/// Reads exactly `bytes`, which carry the descriptors of a frame with their first byte.
Status receive_head(int fd, std::span<std::byte> bytes, std::vector<UniqueFd>& fds,
                    Deadline deadline) {
  while (!bytes.empty()) {
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got > 0) {
      collect_fds(message, fds);
      if ((message.msg_flags & MSG_CTRUNC) != 0) {
        return Status::error(Code::kSystemError,
                             "descriptors were lost on their way: too many are open (ulimit -n)");
      }
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      const Status ready = wait_for(fd, POLLIN, deadline);
      if (!ready.ok()) return ready;
    } else if (got == 0 || errno != EINTR) {
      return Status::error(Code::kRemoteError, "the other end closed the connection");
    }
  }
  return {};
}

}  // namespace

Result<UniqueFd> listen_on_unix(std::string_view name) {
  Result<UnixName> address = abstract_name(name);
  if (!address.ok()) return address.status();
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid() || bind(fd.get(), generic(*address), address->length) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return Status::system(errno, "cannot listen on a unix socket");
  }
  return fd;
}

Result<UniqueFd> connect_to_unix(std::string_view name, Deadline deadline) {
  Result<UnixName> address = abstract_name(name);
  if (!address.ok()) return address.status();
  // Blocking while it connects: a full backlog cannot be waited for otherwise.
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::system(errno, "cannot make a unix socket");
  while (true) {
    const int left = deadline.left_ms();
    if (left == 0) return Status::error(Code::kRemoteError, "no answer on a unix socket in time");
    const timeval limit{left > 0 ? left / 1000 : 0, left > 0 ? left % 1000 * 1000 : 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(fd.get(), generic(*address), address->length) == 0) break;
    if (errno == EINTR || errno == EAGAIN) continue;
    return Status::error(Code::kRemoteError, "cannot connect to a unix socket: %s",
                         std::strerror(errno));
  }
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return Status::system(errno, "cannot make a unix socket non-blocking");
  }
  return fd;
}

Status send_with_fds(int fd, std::span<const std::byte> bytes, std::span<const int> fds,
                     Deadline deadline) {
  if (fds.size() > kMaxFds) {
    return Status::error(Code::kInternal, "%zu descriptors in one message", fds.size());
  }
  wire::Writer frame;
  frame.blob(bytes);
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  iovec part{const_cast<std::byte*>(frame.bytes().data()), frame.bytes().size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  while (true) {
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent > 0) {
      // The descriptors went with the first byte; the rest is plain.
      return send_all(fd, std::span(frame.bytes()).subspan(static_cast<size_t>(sent)), deadline);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const Status ready = wait_for(fd, POLLOUT, deadline);
      if (!ready.ok()) return ready;
    } else if (errno != EINTR) {
      return Status::error(Code::kRemoteError, "cannot pass descriptors: %s", std::strerror(errno));
    }
  }
}

Result<FrameWithFds> receive_with_fds(int fd, uint32_t limit, size_t max_fds, Deadline deadline) {
  FrameWithFds frame;
  std::byte head[4];
  const Status got = receive_head(fd, head, frame.fds, deadline);
  if (!got.ok()) return got;
  if (frame.fds.size() > max_fds) {
    return Status::error(Code::kRemoteError, "%zu descriptors where at most %zu are expected",
                         frame.fds.size(), max_fds);
  }
  const uint32_t length = wire::Reader(head).u32();
  if (length > limit) {
    return Status::error(Code::kRemoteError, "a message of %u bytes where at most %u are expected",
                         length, limit);
  }
  frame.bytes.resize(length);
  const Status rest = receive_all(fd, frame.bytes, deadline);
  if (!rest.ok()) return rest;
  return frame;
}

}  // namespace railyard::net
