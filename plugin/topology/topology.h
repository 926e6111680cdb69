// SPDX-License-Identifier: Apache-2.0
//
// Which rank sits where, and which GPU of another node is its relay there. Pure: built from the
// join records, equal on all ranks, immutable, never logs.
//
// Words: a *node* is the set of ranks with one host identity, in order of the lowest rank; a
// *local index* is a rank's position in its node by rank order; a *rail* is the position of the
// rank's nearest NIC among its node's NICs in PCI order, or what RAILYARD_RAILS says, or, without
// NICs, the local index. The *relay* of rank r at another node m is m's rank on r's rail: if
// several of m's ranks share that rail, the ranks of r's node on that rail take them in turn; if
// none is on it, the rank with local index (r's local index mod size of m).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace railyard::topology {

/// What one rank says of itself.
struct Place {
  std::string host;               ///< host identity: equal exactly for ranks of one node
  std::vector<std::string> nics;  ///< PCI paths of the node's usable NICs, in any order
  int nearest_nic = -1;           ///< index into nics, -1: none
  int rail_override = -1;         ///< from RAILYARD_RAILS, -1: none
};

class Topology {
 public:
  /// `places[r]` is rank r's. Fails on an empty list or an index out of range, naming the rank.
  static Result<Topology> build(std::span<const Place> places);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<size_t>(rank)]; }
  int local_index(int rank) const { return local_index_[static_cast<size_t>(rank)]; }
  int rail(int rank) const { return rail_[static_cast<size_t>(rank)]; }
  /// Ranks of a node, ascending: position is local index.
  std::span<const int> members(int node) const { return members_[static_cast<size_t>(node)]; }
  bool same_node(int a, int b) const { return node_of(a) == node_of(b); }

  /// The rank of `node` that receives what `rank` sends there. REQUIRES: node != node_of(rank).
  int relay(int rank, int node) const;
  /// Ranks of other nodes whose relay at `relay`'s node is `relay`, ascending.
  std::vector<int> sources_relayed_by(int relay) const;
  /// Ranks of other nodes that `rank`'s carrier is linked to, ascending: its relays, and those it
  /// relays for.
  std::vector<int> linked_to(int rank) const;

 private:
  std::vector<int> node_of_, local_index_, rail_;
  std::vector<int> rail_position_;  ///< among the ranks of one node that share a rail
  std::vector<std::vector<int>> members_;
  std::vector<std::unordered_map<int, std::vector<int>>> on_rail_;  ///< by node, then rail
};

}  // namespace railyard::topology
