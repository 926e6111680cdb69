// SPDX-License-Identifier: Apache-2.0
// Reads the launchers' variables.
#include "launch_environment.h"

#include <charconv>
#include <limits>
#include <optional>

#include "error.h"

namespace moe {
namespace {

class Variables final {
 public:
  explicit Variables(const GetVariable& get) : get_(get) {}

  bool has(const char* name) const {
    const char* value = get_(name);
    return value != nullptr && value[0] != '\0';
  }

  std::string text(const char* name) const { return has(name) ? get_(name) : ""; }

  int number(const char* name, int low, int high) const {
    if (!has(name)) fail_usage(std::string(name) + " is not set: start all ranks by one launcher");
    const std::string value = text(name);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < low ||
        number > high) {
      fail_usage(std::string(name) + "=" + value + " is not a number from " + std::to_string(low) +
                 " to " + std::to_string(high));
    }
    return number;
  }

  int number_or(const char* name, int low, int high, int fallback) const {
    return has(name) ? number(name, low, high) : fallback;
  }

 private:
  const GetVariable& get_;
};

constexpr int kMost = std::numeric_limits<int>::max();

struct Names {
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;
};

LaunchEnvironment read_ranks(const Variables& env, const Names& names) {
  LaunchEnvironment launch;
  launch.ranks = env.number(names.ranks, 1, kMost);
  launch.rank = env.number(names.rank, 0, launch.ranks - 1);
  launch.local_rank = env.number_or(names.local_rank, 0, kMost, launch.ranks == 1 ? 0 : -1);
  if (launch.local_rank < 0) env.number(names.local_rank, 0, kMost);  // says that it is missing
  launch.local_ranks = env.number_or(names.local_ranks, 1, launch.ranks, 1);
  return launch;
}

// "4(x2),3" -> 4: the leading number of tasks per node.
int leading_number(const std::string& text) {
  int number = 1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

void add_slurm(const Variables& env, LaunchEnvironment& launch) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (!env.has(name)) continue;
    launch.local_ranks = leading_number(env.text(name));
    break;
  }
  // SLURM_LAUNCH_NODE_IPADDR is the node srun was called on. That is rank 0's only where the batch
  // script runs, on the first node of the allocation; the list of the step is right everywhere.
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (!env.has(name)) continue;
    launch.master_address = first_host(env.text(name));
    return;
  }
  if (!env.has("SLURM_LAUNCH_NODE_IPADDR")) {
    fail_usage("srun left no node list: set MASTER_ADDR to the name of rank 0's node");
  }
  launch.master_address = env.text("SLURM_LAUNCH_NODE_IPADDR");
}

void add_master(const Variables& env, LaunchEnvironment& launch) {
  if (env.has("MASTER_ADDR")) launch.master_address = env.text("MASTER_ADDR");
  launch.store_port =
      static_cast<std::uint16_t>(env.number_or("MASTER_PORT", 1, 65534, launch.store_port));
  // torchrun's agent keeps a store of its own on MASTER_PORT.
  if (env.text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++launch.store_port;
}

}  // namespace

LaunchEnvironment read_launch_environment(const GetVariable& get) {
  const Variables env(get);
  LaunchEnvironment launch;
  if (env.has("RANK") || env.has("WORLD_SIZE")) {
    launch = read_ranks(env, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
    if (launch.ranks > 1 && !env.has("MASTER_ADDR")) {
      fail_usage("MASTER_ADDR is not set: set it to the name or address of rank 0's node");
    }
  } else if (env.has("OMPI_COMM_WORLD_RANK")) {
    launch = read_ranks(env, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
    if (launch.local_ranks < launch.ranks && !env.has("MASTER_ADDR")) {
      fail_usage(
          "mpirun started ranks on several nodes and does not say where rank 0 is: "
          "add -x MASTER_ADDR=<name of rank 0's node>");
    }
  } else if (env.has("SLURM_PROCID") && (env.has("SLURM_STEP_ID") || env.has("SLURM_STEPID"))) {
    const char* ranks = env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    launch = read_ranks(env, {"SLURM_PROCID", ranks, "SLURM_LOCALID", ""});
    if (launch.ranks > 1 && !env.has("MASTER_ADDR")) add_slurm(env, launch);
  }
  add_master(env, launch);
  return launch;
}

std::string first_host(std::string_view node_list) {
  const std::size_t open = node_list.find_first_of("[,");
  if (open == std::string_view::npos || node_list[open] == ',') {
    return std::string(node_list.substr(0, open));
  }
  const std::size_t close = node_list.find(']', open);
  const std::size_t end = node_list.find_first_of("-,]", open + 1);
  if (close == std::string_view::npos) {
    fail_usage("node list without a closing bracket: " + std::string(node_list));
  }
  std::string host(node_list.substr(0, open));
  host += node_list.substr(open + 1, end - open - 1);
  return host + first_host(node_list.substr(close + 1));
}

}  // namespace moe
