// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of one node come to share memory: over abstract unix sockets they pass each other
// the descriptors of their pools, of their carriers' bells and of the node segment.
//
//   rank with local index i listens under a random name, told in its Offer
//   i connects to every lower index, and is connected to by every higher one
//   both ends send {key, rank} with descriptors, then keep the connection: its end means that the
//   other process is gone
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "comm/record.h"
#include "comm/region_cache.h"
#include "exchange/engine.h"
#include "exchange/gpu.h"
#include "topology/topology.h"

namespace railyard::comm {

struct NodeSetup {
  const topology::Topology& topology;
  int rank;
  std::span<const Introduction> introductions;  ///< by rank
  std::span<const Offer> offers;                ///< by rank
  Secret key;                                   ///< known to the ranks of this communicator only
  uint64_t segment_bytes;
  exchange::Gpu& gpu;
  RegionCache& regions;
  UniqueFd listener;  ///< under the name in this rank's Offer
};

struct Node {
  std::vector<exchange::Mate> mates;  ///< by local index
  std::shared_ptr<device::Region> segment;
};

/// A socket under a name nobody can guess.
struct NodeListener {
  UniqueFd fd;
  std::string name;
};
Result<NodeListener> listen_for_mates();

/// Needs the context current. Fails, naming the rank, when one does not do its part in time.
Result<Node> set_up_node(NodeSetup setup, net::Deadline deadline);

}  // namespace railyard::comm
