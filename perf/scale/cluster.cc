// SPDX-License-Identifier: Apache-2.0
#include "cluster.h"

#include <algorithm>
#include <map>

namespace scale {
namespace {

using railyard::exchange::SlotPlan;
using railyard::topology::Place;
using railyard::topology::Topology;

/// A rank comes to the meeting point, then there are three rounds of one message each way.
constexpr int kSetupMessages = 1 + 3 * 2;

double bytes_per_us(double gbps) { return gbps * 1e3 / 8; }

}  // namespace

const char* name_of(System system) {
  switch (system) {
    case System::kPlain:
      return "plain";
    case System::kSenderRelay:
      return "sender-relay";
    case System::kRailyard:
      return "railyard";
  }
  return "";
}

Cluster::Cluster(const Parameters& parameters, Topology topology)
    : parameters_(parameters), topology_(std::move(topology)) {}

railyard::Result<Cluster> Cluster::make(const Parameters& parameters) {
  std::vector<Place> places;
  for (int node = 0; node < parameters.nodes; ++node) {
    for (int gpu = 0; gpu < parameters.gpus; ++gpu) {
      Place place;
      place.host = "node" + std::to_string(node);
      places.push_back(std::move(place));
    }
  }
  auto topology = Topology::build(places);
  if (!topology.ok()) return topology.status();
  Cluster cluster(parameters, topology.take());
  cluster.find_needs();
  return cluster;
}

void Cluster::find_needs() {
  for (int rank = 0; rank < parameters_.gpus; ++rank) {  // of one node; all are alike
    needs_.links = std::max(needs_.links, static_cast<int>(topology_.linked_to(rank).size()));
  }
  needs_.setup_messages = kSetupMessages;
  const std::vector<railyard::exchange::Holding> holdings(
      static_cast<size_t>(topology_.ranks()),
      railyard::exchange::first_holding(uint64_t{parameters_.buffer_mb} << 20));
  const auto plan = SlotPlan::make(topology_, holdings);
  if (!plan.ok()) {
    needs_.trouble = plan.status().message();
    needs_.cell_bytes = railyard::exchange::kMinCellBytes;
    needs_.slots_per_flow = 1;
    return;
  }
  needs_.staging_bytes = plan->staging_bytes(0);
  needs_.landing_bytes = plan->landing_bytes(0);
  needs_.slots_per_flow = plan->slots_per_flow();
  needs_.cell_bytes = plan->cell_bytes();
}

/// The part of the way between the NICs of two ranks.
bool Cluster::across(int from, int to, std::vector<Hop>* hops) const {
  hops->push_back({Kind::kEgress, from});
  if (topology_.rail(from) != topology_.rail(to)) {
    if (parameters_.oversubscription == 0) return false;
    hops->push_back({Kind::kUp, topology_.rail(from)});
    hops->push_back({Kind::kDown, topology_.rail(to)});
  }
  hops->push_back({Kind::kIngress, to});
  return true;
}

std::optional<std::vector<Cluster::Hop>> Cluster::way(System system, int from, int to) const {
  std::vector<Hop> hops;
  if (topology_.same_node(from, to)) return std::vector<Hop>{{Kind::kNvlink, to}};
  bool joined = false;
  switch (system) {
    case System::kPlain:
      joined = across(from, to, &hops);
      break;
    case System::kSenderRelay: {
      const int relay = topology_.relay(to, topology_.node_of(from));
      if (relay != from) hops.push_back({Kind::kNvlink, relay});
      joined = across(relay, to, &hops);
      break;
    }
    case System::kRailyard: {
      const int relay = topology_.relay(from, topology_.node_of(to));
      joined = across(from, relay, &hops);
      if (relay != to) hops.push_back({Kind::kNvlink, to});
      break;
    }
  }
  return joined ? std::optional(hops) : std::nullopt;
}

Link Cluster::link(Kind kind) const {
  const Parameters& p = parameters_;
  const double nic = bytes_per_us(p.link_gbps) * p.efficiency;
  switch (kind) {
    case Kind::kNvlink:
      return {bytes_per_us(p.nvlink_gbps), 1, 0};
    case Kind::kEgress:
      return {nic, p.delay_us, p.cell_us};
    case Kind::kIngress:
      return {nic, p.delay_us, 0};
    case Kind::kUp:
    case Kind::kDown:
      return {nic * p.nodes / std::max(p.oversubscription, 1), p.delay_us, 0};
  }
  return {};
}

std::optional<double> Cluster::bound(System system) const {
  // What the ranks of the first node send; NICs and NVLink of all nodes have the same to do, and
  // all nodes share the uplinks. What is on its way in loads links as what is on its way out does.
  std::map<std::pair<Kind, int>, int64_t> messages;
  double fill = 0;
  for (int from = 0; from < parameters_.gpus; ++from) {
    for (int to = 0; to < topology_.ranks(); ++to) {
      if (from == to) continue;
      const auto hops = way(system, from, to);
      if (!hops) return std::nullopt;
      double delays = 0;
      for (const Hop& hop : *hops) {
        const bool shared = hop.kind == Kind::kUp || hop.kind == Kind::kDown;
        const int position = shared ? hop.position : topology_.local_index(hop.position);
        messages[{hop.kind, position}] += shared ? parameters_.nodes : 1;
        delays += link(hop.kind).delay_us;
      }
      fill = std::max(fill, delays);
    }
  }
  const auto bytes = static_cast<double>(parameters_.bytes_per_pair);
  const auto cells =
      static_cast<double>((parameters_.bytes_per_pair + needs_.cell_bytes - 1) / needs_.cell_bytes);
  double busiest = 0;
  for (const auto& [where, count] : messages) {
    const Link l = link(where.first);
    busiest = std::max(busiest,
                       static_cast<double>(count) * (bytes / l.bytes_per_us + cells * l.cell_us));
  }
  return parameters_.start_us + fill + busiest;
}

std::optional<double> Cluster::simulate(System system) const {
  Simulator network;
  std::map<std::pair<Kind, int>, int> links;
  const int ranks = topology_.ranks();
  for (int step = 1; step < ranks; ++step) {  // everybody begins elsewhere
    for (int from = 0; from < ranks; ++from) {
      const int to = (from + step) % ranks;
      const auto hops = way(system, from, to);
      if (!hops) return std::nullopt;
      Flow flow;
      for (const Hop& hop : *hops) {
        const auto [known, added] = links.try_emplace({hop.kind, hop.position}, 0);
        if (added) known->second = network.add_link(link(hop.kind));
        flow.path.push_back(known->second);
      }
      flow.bytes = parameters_.bytes_per_pair;
      flow.cell_bytes = needs_.cell_bytes;
      flow.window = system == System::kRailyard ? needs_.slots_per_flow : 0;
      network.add(std::move(flow));
    }
  }
  return parameters_.start_us + network.run();
}

}  // namespace scale
