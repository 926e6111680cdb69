// SPDX-License-Identifier: Apache-2.0
//
// `railyard explain`: what railyard would do on a cluster of a given shape, computed by the
// library's own rules, or what it did with the communicators of past runs, from their statistics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/status.h"

namespace railyard::command {

struct ExplainOptions {
  int nodes = 0, gpus = 0;
  std::vector<int> layout;  ///< GPUs by node
  std::vector<int> rails;   ///< by local index; empty: the local index itself
  int rank = 0;
  uint32_t buffer_mb = 64, queue_pairs = 1;
  std::string transport = "verbs", comms = "auto";
  bool no_nvlink = false;
  double link_gbps = 400, nvlink_gbps = 3600;  ///< 10^9 bits per second, each way
  std::vector<uint64_t> bytes;                 ///< per pair
  std::vector<std::string> stats;              ///< files
  bool json = false;
};

CLI::App* add_explain(CLI::App& app, ExplainOptions* options);

/// All that is to be told of a cluster. kInvalidArgument for a shape that cannot be.
Result<nlohmann::json> explain_cluster(const ExplainOptions& options);
/// The same for people.
std::string cluster_text(const nlohmann::json& cluster);

/// 0; 2 for wrong use.
int explain(const ExplainOptions& options);

}  // namespace railyard::command
