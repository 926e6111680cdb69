// SPDX-License-Identifier: Apache-2.0
//
// TCP between the ranks. Everything is IPv4; by default all ranks meet on the loopback interface,
// with NCCL_SOCKET_IFNAME on the interfaces it names. EMULATOR_NET_IFNAME names those for data
// alone, as NCCL_IB_HCA does in the real one. The rank of device d takes the d-th, in turn.
//
// Functions that wait give up, with ncclInternalError, once `cancel` (an eventfd, or -1) is
// readable.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include <nccl.h>

#include "base/unique_fd.h"

namespace railyard::emulator {

/// Proof that a connection belongs here.
struct Key {
  uint64_t words[2] = {0, 0};
  bool operator==(const Key&) const = default;
};

/// False if the system has no random numbers.
bool make_key(Key* key);

std::string to_text(const sockaddr_in& address);

/// Where the rank of `device` listens for data, with port 0.
ncclResult_t data_address(int device, sockaddr_in* address);
/// Where a process listens for ranks that meet, with port 0.
ncclResult_t meeting_address(sockaddr_in* address);

/// "host:port".
ncclResult_t parse_address(const std::string& text, sockaddr_in* address);

/// Listens at `address` and puts the port it got into it.
ncclResult_t listen_at(sockaddr_in* address, UniqueFd* fd);

/// Starts to connect, from the address of `from` if given; the socket is non-blocking and becomes
/// writable when connected or refused.
ncclResult_t start_connect(const sockaddr_in& address, UniqueFd* fd,
                           const sockaddr_in* from = nullptr);

/// Connects; as long as nobody listens there it tries again for up to `patience_s`.
ncclResult_t connect_to(const sockaddr_in& address, int patience_s, int cancel, UniqueFd* fd);

/// All bytes or an error: ncclRemoteError when the other end is gone. `fd` may be non-blocking.
ncclResult_t send_all(int fd, const void* data, size_t bytes, int cancel);
ncclResult_t receive_all(int fd, void* data, size_t bytes, int cancel);

/// Waits at most `timeout_ms` (-1: without end) until `fd` can be read or `cancel` was set.
ncclResult_t wait_readable(int fd, int cancel, int timeout_ms = -1);

void set_no_delay(int fd);

}  // namespace railyard::emulator
