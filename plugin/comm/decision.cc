// SPDX-License-Identifier: Apache-2.0
#include "comm/decision.h"

#include <algorithm>
#include <map>
#include <optional>

namespace railyard::comm {
namespace {

using Introductions = std::span<const Introduction>;

/// The first setting in which a rank differs from rank 0.
std::optional<std::string> disagreement(Introductions introductions) {
  const Introduction& first = introductions.front();
  for (size_t rank = 1; rank < introductions.size(); ++rank) {
    const Introduction& other = introductions[rank];
    const auto [a, b] = std::mismatch(first.settings.begin(), first.settings.end(),
                                      other.settings.begin(), other.settings.end());
    if (a == first.settings.end() && b == other.settings.end()) continue;
    return name_of(0, first) + " has " + (a == first.settings.end() ? "nothing" : *a) + ", but " +
           name_of(static_cast<int>(rank), other) + " has " +
           (b == other.settings.end() ? "nothing" : *b) + ": set the same everywhere";
  }
  return std::nullopt;
}

std::optional<std::string> trouble(Introductions introductions) {
  for (size_t rank = 0; rank < introductions.size(); ++rank) {
    const Introduction& one = introductions[rank];
    if (one.trouble.empty()) continue;
    return name_of(static_cast<int>(rank), one) + " cannot take part: " + one.trouble;
  }
  return std::nullopt;
}

/// An NVLink clique with ranks on two nodes.
std::optional<std::string> spanning_fabric(Introductions introductions,
                                           const topology::Topology& topology) {
  std::map<std::string, int> first_member;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const std::string& fabric = introductions[static_cast<size_t>(rank)].fabric;
    if (fabric.empty()) continue;
    const int first = first_member.try_emplace(fabric, rank).first->second;
    if (topology.same_node(first, rank)) continue;
    return "NVLink itself joins " + name_of(first, introductions[static_cast<size_t>(first)]) +
           " and " + name_of(rank, introductions[static_cast<size_t>(rank)]);
  }
  return std::nullopt;
}

std::optional<std::string> missing_nvlink(Introductions introductions,
                                          const topology::Topology& topology) {
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const Introduction& one = introductions[static_cast<size_t>(rank)];
    if (one.nvlink || topology.members(topology.node_of(rank)).size() < 2) continue;
    return "the GPU of " + name_of(rank, one) +
           " has no NVLink to its neighbours (RAILYARD_COMMS=all takes over all the same)";
  }
  return std::nullopt;
}

}  // namespace

Decision decide(Introductions introductions, const topology::Topology& topology, CommsMode mode) {
  if (const auto why = disagreement(introductions)) return {false, *why, true};
  if (topology.nodes() < 2) return {false, "all ranks are on one node", false};
  int largest = 0;
  for (int node = 0; node < topology.nodes(); ++node) {
    largest = std::max(largest, static_cast<int>(topology.members(node).size()));
  }
  if (largest < 2) return {false, "no node has more than one rank", false};
  if (mode == CommsMode::kOff) return {false, "RAILYARD_COMMS=off", false};
  if (const auto why = trouble(introductions)) return {false, *why, true};
  if (const auto why = spanning_fabric(introductions, topology)) return {false, *why, false};
  if (mode == CommsMode::kAuto) {
    if (const auto why = missing_nvlink(introductions, topology)) return {false, *why, false};
  }
  for (size_t rank = 0; rank < introductions.size(); ++rank) {
    const std::string& mine = introductions[rank].transport;
    if (mine == introductions.front().transport && !mine.empty()) continue;
    return {false,
            name_of(static_cast<int>(rank), introductions[rank]) +
                (mine.empty() ? " has no transport" : " would use transport " + mine) +
                (introductions.front().transport.empty()
                     ? ""
                     : ", rank 0 would use " + introductions.front().transport),
            true};
  }
  return {true, std::to_string(topology.nodes()) + " nodes", false};
}

}  // namespace railyard::comm
