// SPDX-License-Identifier: Apache-2.0
//
// Where ranks meet whose communicator was made without a mark: it existed before railyard was
// loaded, as happens when NCCL loads it as a plugin. All ranks are told one address in advance, by
// RAILYARD_RENDEZVOUS or by what every launcher sets for the program's own store. NCCL's hash of
// the communicator, which its ranks alone know, names the meeting and is the key to it.
//
// Pure, but for resolve().
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/config.h"
#include "base/nccl_env.h"
#include "base/socket.h"
#include "base/status.h"
#include "comm/meeting_point.h"

namespace railyard::comm {

/// MASTER_PORT belongs to the program's store; the rendezvous is so much above it.
inline constexpr uint16_t kRendezvousOffset = 711;

/// Nothing if the environment names no place.
std::optional<HostPort> find_rendezvous(const Config& config, const NcclEnv& environment);

/// Asks the system's resolver, so it may take its time. IPv4 first, so that all ranks agree.
Result<net::SocketAddress> resolve(const HostPort& place);

/// Where rank 0 listens so that others reach it at `resolved`. Hosts often know their own name as a
/// loopback address, while the others do not: then on all interfaces.
net::SocketAddress listening_address(const HostPort& place, const net::SocketAddress& resolved);

/// Without an address.
MeetingPoint point_of_hash(uint64_t hash, int ranks);

}  // namespace railyard::comm
