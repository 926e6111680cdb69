// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <algorithm>
#include <unordered_map>

namespace railyard::topology {
namespace {

/// All NICs that any rank of the node sees, in PCI order.
std::vector<std::string> nics_of_node(std::span<const Place> places, std::span<const int> members) {
  std::vector<std::string> nics;
  for (const int rank : members) {
    const auto& seen = places[static_cast<size_t>(rank)].nics;
    nics.insert(nics.end(), seen.begin(), seen.end());
  }
  std::sort(nics.begin(), nics.end());
  nics.erase(std::unique(nics.begin(), nics.end()), nics.end());
  return nics;
}

int rail_of(const Place& place, const std::vector<std::string>& nics, int local_index) {
  if (place.rail_override >= 0) return place.rail_override;
  if (place.nearest_nic < 0) return local_index;
  const std::string& nearest = place.nics[static_cast<size_t>(place.nearest_nic)];
  return static_cast<int>(std::lower_bound(nics.begin(), nics.end(), nearest) - nics.begin());
}

}  // namespace

Result<Topology> Topology::build(std::span<const Place> places) {
  if (places.empty()) return Status::error(Code::kInvalidArgument, "a communicator without ranks");
  Topology topology;
  topology.node_of_.resize(places.size());
  topology.local_index_.resize(places.size());
  topology.rail_.resize(places.size());
  topology.rail_position_.resize(places.size());

  std::unordered_map<std::string, int> node_by_host;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const Place& place = places[rank];
    if (place.nearest_nic < -1 || place.nearest_nic >= static_cast<int>(place.nics.size())) {
      return Status::error(Code::kInvalidArgument,
                           "rank %zu says that NIC %d of its %zu is nearest", rank,
                           place.nearest_nic, place.nics.size());
    }
    const auto [entry, fresh] = node_by_host.try_emplace(place.host, topology.nodes());
    if (fresh) topology.members_.emplace_back();
    auto& members = topology.members_[static_cast<size_t>(entry->second)];
    topology.node_of_[rank] = entry->second;
    topology.local_index_[rank] = static_cast<int>(members.size());
    members.push_back(static_cast<int>(rank));
  }

  topology.on_rail_.resize(topology.members_.size());
  for (size_t node = 0; node < topology.members_.size(); ++node) {
    const auto& members = topology.members_[node];
    const std::vector<std::string> nics = nics_of_node(places, members);
    for (const int member : members) {
      const auto rank = static_cast<size_t>(member);
      const int rail = rail_of(places[rank], nics, topology.local_index_[rank]);
      auto& sharers = topology.on_rail_[node][rail];
      topology.rail_[rank] = rail;
      topology.rail_position_[rank] = static_cast<int>(sharers.size());
      sharers.push_back(member);
    }
  }
  return topology;
}

int Topology::relay(int rank, int node) const {
  const auto& rails = on_rail_[static_cast<size_t>(node)];
  const auto found = rails.find(rail(rank));
  if (found != rails.end()) {
    const auto turn = static_cast<size_t>(rail_position_[static_cast<size_t>(rank)]);
    return found->second[turn % found->second.size()];
  }
  const auto& there = members_[static_cast<size_t>(node)];
  return there[static_cast<size_t>(local_index(rank)) % there.size()];
}

std::vector<int> Topology::sources_relayed_by(int relay_rank) const {
  const int node = node_of(relay_rank);
  std::vector<int> sources;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (node_of(rank) != node && relay(rank, node) == relay_rank) sources.push_back(rank);
  }
  return sources;
}

std::vector<int> Topology::linked_to(int rank) const {
  std::vector<int> peers = sources_relayed_by(rank);
  for (int node = 0; node < nodes(); ++node) {
    if (node != node_of(rank)) peers.push_back(relay(rank, node));
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace railyard::topology
