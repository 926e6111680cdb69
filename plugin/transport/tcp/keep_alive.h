// SPDX-License-Identifier: Apache-2.0
//
// How soon the end of a peer is noticed that can no longer say so.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace railyard::transport::tcp {

/// A host that vanished without a word is noticed after about two minutes; one that only stopped
/// reading is answered for by its kernel and never given up.
inline void keep_alive(int fd) {
  const int on = 1, idle_s = 60, every_s = 10, times = 6;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

}  // namespace railyard::transport::tcp
