// SPDX-License-Identifier: Apache-2.0
//
// Which network interface railyard's own sockets use: the one NCCL would take, so that what
// NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY say holds for both.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/nccl_env.h"
#include "base/socket.h"
#include "base/status.h"

namespace railyard::net {

struct Interface {
  std::string name;
  SocketAddress address;  ///< port 0
};

/// Interfaces that are up and running, with an IPv4 or IPv6 address that others can reach
/// (link-local IPv6 and ::1 are left out).
Result<std::vector<Interface>> list_interfaces();

/// The best of `interfaces`: those NCCL_SOCKET_IFNAME names, or, if unset, InfiniBand first, then
/// all others, docker's, loopback, virtual bridges. kUnavailable if none fits, naming those there
/// are. Pure.
Result<Interface> choose_interface(std::span<const Interface> interfaces, const NcclEnv& nccl);

/// The interface for the data of a CUDA device: of those that `names` fits, written as in
/// NCCL_SOCKET_IFNAME, the device-th, in turn, of one address family. kUnavailable if none fits.
/// Pure.
Result<Interface> data_interface(std::span<const Interface> interfaces, const std::string& names,
                                 int device);

}  // namespace railyard::net
