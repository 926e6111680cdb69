// SPDX-License-Identifier: Apache-2.0
//
// scale: predicts all-to-all exchanges on clusters that nobody has at hand, by the library's own
// topology, relays and slots.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cluster.h"

namespace scale {
namespace {

using nlohmann::json;

constexpr int kUsage = 2;
constexpr int kMostSimulatedRanks = 64;
constexpr System kSystems[] = {System::kPlain, System::kSenderRelay, System::kRailyard};
const std::map<std::string, int> kFabrics = {
    {"flat", 1}, {"rails-2", 2}, {"rails-4", 4}, {"rail-only", 0}};

struct Options {
  Parameters parameters;
  std::string fabric = "rails-4", json;
  bool sweep = false;
};

void add_options(CLI::App* app, Options* o) {
  Parameters& p = o->parameters;
  app->add_option("--nodes", p.nodes, "Nodes")->check(CLI::Range(2, 4096))->capture_default_str();
  app->add_option("--gpus", p.gpus, "GPUs of each")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app->add_flag("--sweep", o->sweep, "8, 16, … 4,096 nodes instead of one number");
  app->add_option(
         "--fabric", o->fabric,
         "flat; rails-2, rails-4: a rail's uplink has a half, a quarter of its links' rate; "
         "rail-only: no spine")
      ->check(CLI::IsMember({"flat", "rails-2", "rails-4", "rail-only"}))
      ->capture_default_str();
  app->add_option("--bytes", p.bytes_per_pair, "Bytes from each rank to each, as in 1M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  for (const auto& [name, value, meaning] :
       {std::tuple{"--link-gbps", &p.link_gbps, "Rate of a NIC, 10^9 bits per second each way"},
        {"--nvlink-gbps", &p.nvlink_gbps, "Rate of a GPU's NVLink"},
        {"--efficiency", &p.efficiency, "Part of a NIC's rate that payload gets"}}) {
    app->add_option(name, *value, meaning)->check(CLI::PositiveNumber)->capture_default_str();
  }
  for (const auto& [name, value, meaning] :
       {std::tuple{"--delay-us", &p.delay_us, "Delay of each link of the network"},
        {"--cell-us", &p.cell_us, "What a cell takes at its NIC besides its bytes"},
        {"--start-us", &p.start_us, "From the call to the first byte"}}) {
    app->add_option(name, *value, meaning)->check(CLI::NonNegativeNumber)->capture_default_str();
  }
  app->add_option("--buffer-mb", p.buffer_mb, "As RAILYARD_BUFFER_MB")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app->add_option("--json", o->json, "File for the figures");
  app->footer(
      "A time is that of the busiest link, with delays; on up to 64 ranks cells are simulated one "
      "by\n"
      "one. Links are NICs, uplinks of rails to the spine and back, and NVLink; \"-\": there is no "
      "way,\n"
      "or NCCL keeps the communicator. The column links counts ranks that a carrier is linked to: "
      "a queue\n"
      "pair each with verbs (one NIC, RAILYARD_QPS=1), two connections each with tcp.");
}

json predict(const Parameters& parameters, const Cluster& cluster) {
  const Needs& needs = cluster.needs();
  const bool simulated = parameters.nodes * parameters.gpus <= kMostSimulatedRanks;
  json times = json::object();
  for (const System system : kSystems) {
    // Without a slot plan railyard leaves the communicator to NCCL.
    if (system == System::kRailyard && !needs.trouble.empty()) {
      times[name_of(system)] = json();
      continue;
    }
    const auto time = simulated ? cluster.simulate(system) : cluster.bound(system);
    times[name_of(system)] = time ? json(*time) : json();
  }
  json row = {{"nodes", parameters.nodes},
              {"gpus", parameters.gpus},
              {"simulated", simulated},
              {"time_us", times},
              {"links_per_rank", needs.links},
              {"queue_pairs_per_rank", needs.links},
              {"tcp_connections_per_rank", 2 * needs.links},
              {"setup_messages_per_rank", needs.setup_messages},
              {"cell_bytes", needs.cell_bytes},
              {"slots_per_flow", needs.slots_per_flow},
              {"memory_bytes_per_rank", needs.staging_bytes + needs.landing_bytes}};
  if (!needs.trouble.empty()) row["trouble"] = needs.trouble;
  return row;
}

void print(const json& row) {
  std::printf("%6d x %-3d", row["nodes"].get<int>(), row["gpus"].get<int>());
  for (const System system : kSystems) {
    const json& time = row["time_us"][name_of(system)];
    if (time.is_null()) {
      std::printf("%15s", "-");
    } else {
      std::printf("%15.1f", time.get<double>());
    }
  }
  std::printf("%7d %6d %9.1f", row["links_per_rank"].get<int>(),
              row["setup_messages_per_rank"].get<int>(),
              row["memory_bytes_per_rank"].get<double>() / (1 << 20));
  if (row.contains("trouble")) {
    std::printf("   stays with NCCL: %s\n", row["trouble"].get<std::string>().c_str());
  } else {
    std::printf("   %d of %.0f KiB\n", row["slots_per_flow"].get<int>(),
                row["cell_bytes"].get<double>() / 1024);
  }
  std::fflush(stdout);
}

int run(const Options& options) {
  std::vector<int> nodes = {options.parameters.nodes};
  if (options.sweep) nodes = {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  std::printf("all-to-all of %llu bytes per pair on %s\n",
              static_cast<unsigned long long>(options.parameters.bytes_per_pair),
              options.fabric.c_str());
  std::printf("%12s%15s%15s%15s%7s %6s %9s   %s\n", "nodes x GPUs", "plain, us", "sender-relay",
              "railyard", "links", "set-up", "MiB", "slots of a flow");
  json rows = json::array();
  for (const int count : nodes) {
    Parameters parameters = options.parameters;
    parameters.nodes = count;
    parameters.oversubscription = kFabrics.at(options.fabric);
    const auto cluster = Cluster::make(parameters);
    if (!cluster.ok()) {
      std::fprintf(stderr, "scale: %s\n", cluster.status().message().c_str());
      return kUsage;
    }
    rows.push_back(predict(parameters, *cluster));
    print(rows.back());
  }
  if (options.json.empty()) return 0;
  std::ofstream file(options.json);
  file << json{{"fabric", options.fabric},
               {"bytes_per_pair", options.parameters.bytes_per_pair},
               {"clusters", rows}}
              .dump(1)
       << "\n";
  if (file.flush()) return 0;
  std::fprintf(stderr, "scale: cannot write %s\n", options.json.c_str());
  return kUsage;
}

}  // namespace
}  // namespace scale

int main(int argc, char** argv) {
  scale::Options options;
  CLI::App app{"Predicts all-to-all exchanges by railyard's own topology, relays and slots."};
  scale::add_options(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : scale::kUsage;
  }
  return scale::run(options);
}
