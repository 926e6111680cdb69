// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell each other while they join. First an Introduction, from which all decide alike
// whether the communicator is to be taken over; only if so an Offer, since that costs memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/wire.h"
#include "comm/meeting_point.h"
#include "device/memory.h"
#include "exchange/slots.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace railyard::comm {

struct Introduction {
  topology::Place place;
  std::string host_name;  ///< for messages
  Secret process{};       ///< equal exactly for ranks of one process
  bool nvlink = false;    ///< the GPU has NVLink to others of its node
  std::string fabric;     ///< the NVLink clique the GPU belongs to, if it may span hosts
  /// "NAME=value" for all that must be equal everywhere, in the same order on all ranks.
  std::vector<std::string> settings;
  std::string transport;  ///< name of the one this rank would use; empty: none, see `trouble`
  std::string trouble;    ///< why this rank cannot take part; empty: it can
  MeetingPoint server;    ///< where children of the communicator can meet if this is rank 0

  wire::Bytes encode() const;
  static std::optional<Introduction> decode(std::span<const std::byte> bytes);
};

/// A pool of a GPU, shareable by its descriptor.
struct Pool {
  Secret id{};  ///< equal exactly for one and the same memory
  device::MemoryKind kind = device::MemoryKind::kHost;
  uint64_t bytes = 0;
};

struct Offer {
  std::string trouble;  ///< as in Introduction; nothing else counts then
  transport::Address address;
  exchange::Holding holding;
  Pool staging, landing;
  std::string unix_name;  ///< abstract socket where ranks of the node pass descriptors

  wire::Bytes encode() const;
  /// Nothing, too, if the holding lies outside its pools or has tags that there are not.
  static std::optional<Offer> decode(std::span<const std::byte> bytes);
};

/// "rank 5 on node-b"
std::string name_of(int rank, const Introduction& introduction);

}  // namespace railyard::comm
