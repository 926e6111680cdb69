// SPDX-License-Identifier: Apache-2.0
#include "explain.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "comm/decision.h"
#include "exchange/slots.h"
#include "summary.h"
#include "topology/topology.h"

namespace railyard::command {
namespace {

using nlohmann::json;

constexpr int kUsage = 2;
constexpr int kMostRanks = 65536;
constexpr const char* kFooter =
    "Expected times are those of an all-to-all of that many bytes for each pair of ranks: the "
    "largest of\n"
    "what the rank's NIC sends and gets over --link-gbps, and what it moves inside its node over\n"
    "--nvlink-gbps. Start-up (some tens of microseconds) and congestion between rails, which "
    "railyard does\n"
    "not use, come on top.";

/// One rank per GPU, node by node.
std::vector<comm::Introduction> introductions(const ExplainOptions& options,
                                              const std::vector<int>& layout) {
  std::vector<comm::Introduction> result;
  for (size_t node = 0; node < layout.size(); ++node) {
    for (int gpu = 0; gpu < layout[node]; ++gpu) {
      comm::Introduction one;
      one.place.host = one.host_name = "node" + std::to_string(node);
      if (!options.rails.empty()) {
        one.place.rail_override = options.rails[static_cast<size_t>(gpu) % options.rails.size()];
      }
      one.nvlink = !options.no_nvlink;
      one.transport = options.transport;
      result.push_back(std::move(one));
    }
  }
  return result;
}

Result<topology::Topology> topology_of(const std::vector<comm::Introduction>& all) {
  std::vector<topology::Place> places;
  for (const comm::Introduction& one : all) places.push_back(one.place);
  return topology::Topology::build(places);
}

json relays_of(const topology::Topology& topology, int rank) {
  json relays = json::array();
  for (int node = 0; node < topology.nodes(); ++node) {
    if (node != topology.node_of(rank)) relays.push_back(topology.relay(rank, node));
  }
  return relays;
}

/// Messages of one all-to-all that a rank's NIC sends, gets, and that NVLink moves for the rank.
struct Load {
  int64_t sent = 0, received = 0, inside = 0;
  int64_t across = 0;  ///< of those sent: to another rail, had they gone straight to their target
};

Load load_of(const topology::Topology& topology, int rank) {
  Load load;
  const auto mates = static_cast<int64_t>(topology.members(topology.node_of(rank)).size());
  const auto others = static_cast<int64_t>(topology.ranks()) - mates;
  load.sent = others;
  load.received = static_cast<int64_t>(topology.sources_relayed_by(rank).size()) * mates;
  int64_t through_others = 0;
  for (int peer = 0; peer < topology.ranks(); ++peer) {
    if (topology.same_node(rank, peer)) continue;
    if (topology.relay(peer, topology.node_of(rank)) != rank) ++through_others;
    if (topology.rail(peer) != topology.rail(rank)) ++load.across;
  }
  load.inside = mates - 1 + through_others;
  return load;
}

json times(const ExplainOptions& options, const Load& load) {
  json rows = json::array();
  for (const uint64_t bytes : options.bytes) {
    const auto microseconds = [bytes](int64_t messages, double gbps) {
      return static_cast<double>(messages) * static_cast<double>(bytes) * 8 / (gbps * 1e3);
    };
    const double network = microseconds(std::max(load.sent, load.received), options.link_gbps);
    const double inside = microseconds(load.inside, options.nvlink_gbps);
    rows.push_back({{"bytes_per_pair", bytes},
                    {"network_us", network},
                    {"nvlink_us", inside},
                    {"expected_us", std::max(network, inside)}});
  }
  return rows;
}

void add_slots(const ExplainOptions& options, const topology::Topology& topology, json* cluster) {
  const std::vector<exchange::Holding> holdings(
      static_cast<size_t>(topology.ranks()),
      exchange::first_holding(uint64_t{options.buffer_mb} << 20));
  const Result<exchange::SlotPlan> plan = exchange::SlotPlan::make(topology, holdings);
  if (!plan.ok()) {
    (*cluster)["taken_over"] = false;
    (*cluster)["why"] = plan.status().message();
    return;
  }
  (*cluster)["slots"] = {{"per_flow", plan->slots_per_flow()},
                         {"cell_bytes", plan->cell_bytes()},
                         {"staging_bytes", plan->staging_bytes(options.rank)},
                         {"landing_bytes", plan->landing_bytes(options.rank)}};
}

std::string size_text(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) bytes /= 1024, ++unit;
  return std::to_string(bytes) + " " + units[unit];
}

std::string joined(const json& numbers) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < numbers.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i].get<int>());
  }
  if (numbers.size() > kShown) text += ", … (" + std::to_string(numbers.size()) + " in all)";
  return text;
}

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

/// Every communicator that statistics tell of: how often, and why it was taken over or not.
int explain_stats(const ExplainOptions& options) {
  Summary summary;
  for (const std::string& path : options.stats) {
    std::ifstream file(path);
    if (!file) {
      std::fprintf(stderr,
                   "railyard: cannot read %s; name a file that a run wrote with RAILYARD_STATS or "
                   "railyard run --stats\n",
                   path.c_str());
      return kUsage;
    }
    summary.add(file);
  }
  std::fputs((options.json ? summary.to_json().dump(2) + "\n" : summary.text()).c_str(), stdout);
  return 0;
}

}  // namespace

CLI::App* add_explain(CLI::App& app, ExplainOptions* o) {
  CLI::App* const explain = app.add_subcommand("explain",
                                               "Say what railyard does on a cluster (rails, "
                                               "relays, memory, connections, expected times), or "
                                               "what past runs did");
  explain->add_option("--nodes", o->nodes, "Nodes of the cluster")
      ->check(CLI::Range(1, kMostRanks));
  explain->add_option("--gpus", o->gpus, "GPUs of every node")->check(CLI::Range(1, 1024));
  explain->add_option("--layout", o->layout, "Or the GPUs of each, as in 8,8,4")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  explain->add_option("--rails", o->rails, "Rail of each GPU of a node, as RAILYARD_RAILS")
      ->delimiter(',')
      ->check(CLI::Range(0, 1023));
  explain->add_option("--rank", o->rank, "Rank to look at")->capture_default_str();
  explain->add_option("--buffer-mb", o->buffer_mb, "As RAILYARD_BUFFER_MB")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  explain->add_option("--qps", o->queue_pairs, "As RAILYARD_QPS")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  explain->add_option("--transport", o->transport, "As RAILYARD_TRANSPORT")
      ->check(CLI::IsMember({"verbs", "tcp"}))
      ->capture_default_str();
  explain->add_option("--comms", o->comms, "As RAILYARD_COMMS")
      ->check(CLI::IsMember({"auto", "all", "off"}))
      ->capture_default_str();
  explain->add_flag("--no-nvlink", o->no_nvlink, "The GPUs of a node have no NVLink");
  explain->add_option("--link-gbps", o->link_gbps, "Rate of a NIC, 10^9 bits per second each way")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  explain->add_option("--nvlink-gbps", o->nvlink_gbps, "Rate of a GPU's NVLink")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  explain->add_option("--bytes", o->bytes, "Sizes to tell times for, per pair, as in 64K,1M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  explain->add_option("--stats", o->stats, "Statistics of past runs to tell of instead");
  explain->add_flag("--json", o->json, "JSON instead of text");
  explain->footer(kFooter);
  return explain;
}

Result<json> explain_cluster(const ExplainOptions& given) {
  ExplainOptions options = given;
  std::vector<int> layout = options.layout;
  if (layout.empty() && options.nodes > 0 && options.gpus > 0) {
    layout.assign(static_cast<size_t>(options.nodes), options.gpus);
  }
  if (layout.empty()) {
    return Status(Code::kInvalidArgument,
                  "say what the cluster is like: --nodes N --gpus G, or --layout 8,8,4; or which "
                  "statistics to tell of: --stats FILE");
  }
  if (options.bytes.empty()) options.bytes = {4096, 65536, 1 << 20, 16 << 20};
  const auto most = static_cast<size_t>(*std::max_element(layout.begin(), layout.end()));
  if (options.rails.size() > 1 && options.rails.size() < most) {
    return Status::error(
        Code::kInvalidArgument,
        "--rails has %zu entries for nodes of up to %zu GPUs: give one for each, or "
        "a single one for all",
        options.rails.size(), most);
  }
  const std::vector<comm::Introduction> all = introductions(options, layout);
  const auto ranks = static_cast<int>(all.size());
  if (ranks > kMostRanks) {
    return Status::error(Code::kInvalidArgument, "%d ranks are more than the %d that this looks at",
                         ranks, kMostRanks);
  }
  if (options.rank < 0 || options.rank >= ranks) {
    return Status::error(Code::kInvalidArgument, "--rank %d is not among the %d ranks",
                         options.rank, ranks);
  }
  const auto topology = topology_of(all);
  if (!topology.ok()) return topology.status();
  const CommsMode mode = options.comms == "all"   ? CommsMode::kAll
                         : options.comms == "off" ? CommsMode::kOff
                                                  : CommsMode::kAuto;
  const comm::Decision decision = comm::decide(all, *topology, mode);
  const int rank = options.rank;
  json cluster = {{"ranks", ranks},
                  {"nodes", topology->nodes()},
                  {"rank", rank},
                  {"taken_over", decision.take_over},
                  {"why", decision.why},
                  {"node", topology->node_of(rank)},
                  {"rail", topology->rail(rank)},
                  {"transport", options.transport}};
  if (!decision.take_over) return cluster;
  const size_t links = topology->linked_to(rank).size();
  const Load load = load_of(*topology, rank);
  cluster["relays"] = relays_of(*topology, rank);
  cluster["relays_for"] = topology->sources_relayed_by(rank);
  cluster["links"] = links;
  cluster[options.transport == "verbs" ? "queue_pairs" : "connections"] =
      links * (options.transport == "verbs" ? options.queue_pairs : 2);
  cluster["across_rails_without_railyard"] =
      load.sent == 0 ? 0 : static_cast<double>(load.across) / static_cast<double>(load.sent);
  add_slots(options, *topology, &cluster);
  if (cluster["taken_over"]) cluster["times"] = times(options, load);
  return cluster;
}

std::string cluster_text(const json& c) {
  std::string text = std::to_string(c["ranks"].get<int>()) + " ranks on " +
                     std::to_string(c["nodes"].get<int>()) + " nodes: ";
  if (!c["taken_over"]) return text + "left to NCCL: " + c["why"].get<std::string>() + "\n";
  text += "taken over\n";
  text += "rank " + std::to_string(c["rank"].get<int>()) + ": node " +
          std::to_string(c["node"].get<int>()) + ", rail " + std::to_string(c["rail"].get<int>()) +
          "\n";
  text += "  its relays on other nodes:  " + joined(c["relays"]) + "\n";
  text += "  it relays for ranks:        " + joined(c["relays_for"]) + "\n";
  const bool verbs = c.contains("queue_pairs");
  text += "  links:                      " + std::to_string(c["links"].get<int>()) + ", " +
          std::to_string(c[verbs ? "queue_pairs" : "connections"].get<int>()) +
          (verbs ? " queue pairs\n" : " connections\n");
  const json& slots = c["slots"];
  text += "  slots of a flow:            " + std::to_string(slots["per_flow"].get<int>()) +
          ", cells of " + size_text(slots["cell_bytes"].get<uint64_t>()) + "\n";
  text += "  memory:                     " + size_text(slots["staging_bytes"].get<uint64_t>()) +
          " on the way out, " + size_text(slots["landing_bytes"].get<uint64_t>()) +
          " on the way in\n";
  text += "  without railyard " + fixed(100 * c["across_rails_without_railyard"].get<double>()) +
          " % of its bytes to other nodes would change rails\n";
  text += "expected times of an all-to-all, in microseconds\n";
  text += "     bytes per pair      network       NVLink     expected\n";
  for (const json& row : c["times"]) {
    char line[96];
    std::snprintf(line, sizeof line, "%19s %12.1f %12.1f %12.1f\n",
                  size_text(row["bytes_per_pair"].get<uint64_t>()).c_str(),
                  row["network_us"].get<double>(), row["nvlink_us"].get<double>(),
                  row["expected_us"].get<double>());
    text += line;
  }
  return text;
}

int explain(const ExplainOptions& options) {
  if (!options.stats.empty()) return explain_stats(options);
  const Result<json> cluster = explain_cluster(options);
  if (!cluster.ok()) {
    std::fprintf(stderr, "railyard: %s\n", cluster.status().message().c_str());
    return kUsage;
  }
  std::fputs((options.json ? cluster->dump(2) + "\n" : cluster_text(*cluster)).c_str(), stdout);
  return 0;
}

}  // namespace railyard::command
