// SPDX-License-Identifier: Apache-2.0
//
// emulate: runs a program as the ranks of an emulated cluster on this machine, one process a GPU.
//
//   emulate --nodes 2 --gpus 4 -- ./program arguments
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "layout.h"
#include "network.h"
#include "ranks.h"

extern char** environ;

namespace railyard::emulator {
namespace {

constexpr int kUsage = 2;

using Environment = std::map<std::string, std::string>;

struct Arguments {
  int nodes = 0;
  int gpus = 0;
  std::string layout;
  std::string order = "block";
  std::string preload;
  std::string no_preload_on;
  std::vector<std::string> env;
  std::vector<std::string> env_on;
  std::string libraries;
  std::string nccl;
  std::string fabric;
  int link_mbit = 100;
  bool once = false;
  JobOptions job;
  std::vector<std::string> program;
};

/// Names of the fabrics for `separator`, or with their meanings.
std::string list_fabrics(const char* separator, bool explained) {
  std::string text;
  for (const FabricKind& kind : fabric_kinds()) {
    if (!text.empty()) text += separator;
    text += kind.name;
    if (explained) text += std::string(" (") + kind.meaning + ")";
  }
  return text;
}

int fail(const std::string& message) {
  ::fprintf(stderr, "emulate: %s\n", message.c_str());
  return kUsage;
}

/// Below the ports that the kernel gives to outgoing connections, so that none of these takes it
/// between now and the moment a rank listens. 0: none is free.
int free_port() {
  std::random_device random;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    auto port = static_cast<uint16_t>(20000 + random() % 12000);
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (bound) return port;
  }
  return 0;
}

bool set_variable(const std::string& assignment, Environment* environment) {
  size_t equals = assignment.find('=');
  if (equals == 0 || equals == std::string::npos) return false;
  (*environment)[assignment.substr(0, equals)] = assignment.substr(equals + 1);
  return true;
}

void prepend(const std::string& entry, Environment* environment, const std::string& name) {
  std::string& value = (*environment)[name];
  value = value.empty() ? entry : entry + ":" + value;
}

/// The variables of torchrun and Open MPI, and those of the emulator.
Environment place_variables(const Place& place, int ranks, int nodes, const std::string& master,
                            int port) {
  auto text = [](int number) { return std::to_string(number); };
  return {
      {"RANK", text(place.rank)},
      {"WORLD_SIZE", text(ranks)},
      {"LOCAL_RANK", text(place.local)},
      {"LOCAL_WORLD_SIZE", text(place.local_count)},
      {"GROUP_RANK", text(place.node)},
      {"GROUP_WORLD_SIZE", text(nodes)},
      {"NODE_RANK", text(place.node)},
      {"MASTER_ADDR", master},
      {"MASTER_PORT", text(port)},
      {"OMPI_COMM_WORLD_RANK", text(place.rank)},
      {"OMPI_COMM_WORLD_SIZE", text(ranks)},
      {"OMPI_COMM_WORLD_LOCAL_RANK", text(place.local)},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", text(place.local_count)},
      {"OMPI_COMM_WORLD_NODE_RANK", text(place.local)},
      {"NCCL_HOSTID", "node" + text(place.node)},
      {"EMULATOR_GPUS", text(place.local_count)},
  };
}

std::string default_libraries() {
  std::error_code failure;
  auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  return (self.parent_path().parent_path() / "lib").string();
}

/// "R:K=V" into rank and assignment.
bool split_assignment(const std::string& text, int* rank, std::string* assignment) {
  size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  auto number = parse_numbers(text.substr(0, colon));
  if (!number || number->size() != 1) return false;
  *rank = number->front();
  *assignment = text.substr(colon + 1);
  return true;
}

std::vector<std::string> flatten(const Environment& environment) {
  std::vector<std::string> result;
  for (const auto& [name, value] : environment) result.push_back(name + "=" + value);
  return result;
}

/// Everything that can be wrong with the arguments but not seen by the parser. Empty: nothing.
std::string check(const Arguments& arguments, int ranks, std::set<int>* bare) {
  if (!arguments.no_preload_on.empty()) {
    auto list = parse_numbers(arguments.no_preload_on);
    if (!list) return "--no-preload-on must list ranks as in 0,3; got " + arguments.no_preload_on;
    bare->insert(list->begin(), list->end());
    if (*bare->rbegin() >= ranks) return "--no-preload-on names a rank that does not exist";
  }
  Environment scratch;
  for (const std::string& entry : arguments.env) {
    if (!set_variable(entry, &scratch)) return "--env must be NAME=VALUE; got " + entry;
  }
  for (const std::string& entry : arguments.env_on) {
    int rank;
    std::string assignment;
    if (!split_assignment(entry, &rank, &assignment) || !set_variable(assignment, &scratch)) {
      return "--env-on must be RANK:NAME=VALUE; got " + entry;
    }
    if (rank >= ranks) return "--env-on names a rank that does not exist: " + entry;
  }
  return "";
}

/// Where an NCCL of another version than the one beside the other libraries is.
std::filesystem::path nccl_folder(const Arguments& arguments) {
  return std::filesystem::absolute(arguments.libraries).parent_path() / ("nccl-" + arguments.nccl);
}

Environment rank_environment(const Arguments& arguments, const Environment& base, int rank,
                             bool preload) {
  Environment environment = base;
  if (preload && !arguments.preload.empty()) {
    prepend(std::filesystem::absolute(arguments.preload).string(), &environment, "LD_PRELOAD");
  }
  prepend(arguments.libraries, &environment, "LD_LIBRARY_PATH");
  if (!arguments.nccl.empty()) {
    prepend(nccl_folder(arguments).string(), &environment, "LD_LIBRARY_PATH");
  }
  for (const std::string& entry : arguments.env) set_variable(entry, &environment);
  for (const std::string& entry : arguments.env_on) {
    int target;
    std::string assignment;
    split_assignment(entry, &target, &assignment);
    if (target == rank) set_variable(assignment, &environment);
  }
  return environment;
}

/// GPUs of each node; empty: the order of the ranks says it.
std::vector<int> node_sizes(const Arguments& arguments, std::string* error) {
  if (!arguments.layout.empty()) {
    auto layout = parse_numbers(arguments.layout);
    if (!layout) *error = "--layout must list GPUs per node as in 2,3,1";
    return layout ? *layout : std::vector<int>();
  }
  if (arguments.nodes > 0) {
    return std::vector<int>(static_cast<size_t>(arguments.nodes), arguments.gpus);
  }
  if (!parse_numbers(arguments.order)) {
    *error = "say how many GPUs each node has: --nodes N --gpus G, or --layout 2,3,1";
  }
  return {};
}

std::unique_ptr<Network> make_network(const Arguments& arguments, const std::vector<Place>& places,
                                      std::string* error) {
  const FabricKind* kind = find_fabric(arguments.fabric);
  if (kind == nullptr) {
    *error = "--fabric must be one of " + list_fabrics(", ", false) + "; got " + arguments.fabric;
    return nullptr;
  }
  std::vector<int> gpus;
  for (const Place& place : places) {
    gpus.resize(std::max(gpus.size(), static_cast<size_t>(place.node) + 1));
    gpus[static_cast<size_t>(place.node)] = place.local_count;
  }
  auto network = Network::make(*kind, gpus, arguments.link_mbit, error);
  if (network == nullptr) *error = "--fabric " + arguments.fabric + ": " + *error;
  return network;
}

/// What programs need to know of the network: NCCL's sockets go by management, data by the NICs.
Environment network_variables(const Network& network, int nodes) {
  Environment variables = {{"NCCL_SOCKET_IFNAME", "mgmt"}, {"EMULATOR_NET_IFNAME", "rail"}};
  const std::string spaces = "/proc/" + std::to_string(::getpid()) + "/fd/";
  for (int node = 0; node < nodes; ++node) {
    const char* comma = node == 0 ? "" : ",";
    variables["EMULATOR_NODES"] += comma + Network::address(node);
    variables["EMULATOR_NAMESPACES"] += comma + spaces + std::to_string(network.node(node));
  }
  return variables;
}

int launch(const Arguments& arguments) {
  std::string error;
  const std::vector<int> gpus = node_sizes(arguments, &error);
  if (!error.empty()) return fail(error);
  const std::vector<Place> places = place_ranks(gpus, arguments.order, &error);
  if (places.empty()) return fail(error);
  auto ranks = static_cast<int>(places.size());
  std::set<int> bare;
  error = check(arguments, ranks, &bare);
  if (!error.empty()) return fail(error);
  if (!arguments.nccl.empty() && !std::filesystem::exists(nccl_folder(arguments))) {
    return fail("--nccl " + arguments.nccl + ": there is no " + nccl_folder(arguments).string());
  }
  int port = free_port();
  if (port == 0) return fail("found no free port for MASTER_PORT");

  Environment inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) set_variable(*entry, &inherited);
  int nodes = 0;
  for (const Place& place : places) nodes = std::max(nodes, place.node + 1);
  std::unique_ptr<Network> network;
  if (!arguments.fabric.empty()) {
    network = make_network(arguments, places, &error);
    if (network == nullptr) return fail(error);
    inherited.merge(network_variables(*network, nodes));
  }
  const std::string master = network ? Network::address(0) : "127.0.0.1";
  std::vector<RankProgram> programs;
  for (const Place& place : places) {
    if (arguments.once && place.rank > 0) break;
    Environment environment = place_variables(place, ranks, nodes, master, port);
    environment.insert(inherited.begin(), inherited.end());  // keeps what is already there
    environment = rank_environment(arguments, environment, place.rank, bare.count(place.rank) == 0);
    programs.push_back({place.rank, place.node, arguments.program, flatten(environment),
                        network ? network->node(place.node) : -1});
  }
  return run_job(programs, arguments.job);
}

void add_options(CLI::App* app, Arguments* arguments) {
  app->footer(
      "Ranks see RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, NODE_RANK, "
      "MASTER_ADDR and\nMASTER_PORT as torchrun sets them, OMPI_COMM_WORLD_* as mpirun does, and "
      "NCCL_HOSTID=node<i>.\nWith --fabric also, by node and with commas, EMULATOR_NODES, the "
      "management addresses, and\nEMULATOR_NAMESPACES, for nsenter --net=FILE; "
      "NCCL_SOCKET_IFNAME and EMULATOR_NET_IFNAME name the\ninterfaces for set-up and data.\nExit "
      "status: 0 if all ranks return 0, else that of the first rank "
      "that fails; 124 after --timeout.");
  auto* nodes =
      app->add_option("--nodes", arguments->nodes, "Number of nodes")->check(CLI::Range(1, 4096));
  auto* gpus =
      app->add_option("--gpus", arguments->gpus, "GPUs of every node")->check(CLI::Range(1, 4096));
  nodes->needs(gpus);
  gpus->needs(nodes);
  app->add_option("--layout", arguments->layout, "GPUs of each node, as in 2,3,1")
      ->excludes(nodes)
      ->excludes(gpus);
  app->add_option("--order", arguments->order,
                  "Where ranks go: block, cyclic, or the node of every rank as in 0,1,1,0")
      ->capture_default_str();
  app->add_option("--preload", arguments->preload, "Library to preload into the ranks")
      ->check(CLI::ExistingFile);
  app->add_option("--no-preload-on", arguments->no_preload_on, "Ranks without it, as in 0,3");
  app->add_option("--env", arguments->env, "NAME=VALUE for all ranks; may be repeated")
      ->allow_extra_args(false);
  app->add_option("--env-on", arguments->env_on, "RANK:NAME=VALUE for one rank; may be repeated")
      ->allow_extra_args(false);
  app->add_option("--timeout", arguments->job.timeout_s,
                  "Seconds after which all ranks are stopped")
      ->check(CLI::PositiveNumber);
  app->add_flag("--tag-output", arguments->job.tag_output, "Begin each line with the rank in []");
  app->add_option("--nccl", arguments->nccl,
                  "Version of the emulated NCCL, as in 2.20, instead of the usual one");
  app->add_option("--fabric", arguments->fabric,
                  "Gives every node a network namespace with a shaped link per GPU: " +
                      list_fabrics(", ", true));
  app->add_option("--link-mbit", arguments->link_mbit, "Rate of such a link, each way")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app->add_flag(
      "--once", arguments->once,
      "Run the program as rank 0 only: one that starts the others itself, as mpirun does");
  app->add_option("--libraries", arguments->libraries, "Folder of the emulated CUDA and NCCL")
      ->check(CLI::ExistingDirectory);
}

int run(int argc, char** argv) {
  Arguments arguments;
  arguments.libraries = default_libraries();
  CLI::App app{
      "Runs a program as the ranks of an emulated cluster: one process per GPU, with the emulated\n"
      "CUDA and NCCL in its library path.\n\n"
      "  emulate --nodes N --gpus G [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
      "  emulate --layout LIST [OPTIONS] -- PROGRAM [ARGUMENTS]"};
  add_options(&app, &arguments);
  int own = 1;
  while (own < argc && std::string_view(argv[own]) != "--") ++own;
  for (int i = own + 1; i < argc; ++i) arguments.program.push_back(argv[i]);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (arguments.program.empty()) return fail("no program given: put it and its arguments after --");
  return launch(arguments);
}

}  // namespace
}  // namespace railyard::emulator

int main(int argc, char** argv) { return railyard::emulator::run(argc, argv); }
