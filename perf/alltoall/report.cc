// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "error.h"

namespace alltoall {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// 10^9 bytes per second.
double bandwidth(const Result& result) {
  return static_cast<double>(result.size) / median(result.times_us) / 1e3;
}

}  // namespace

Report::Report(const Options& options, int ranks, int nodes)
    : options_(options), ranks_(ranks), nodes_(nodes) {
  if (!options.json.empty() && !std::ofstream(options.json, std::ios::app)) {
    moe::fail_usage("cannot write " + options.json);
  }
  std::printf("# %d ranks on %d nodes, pattern %s, seed %llu, %d iterations after %d\n", ranks,
              nodes, options.pattern.text().c_str(), static_cast<unsigned long long>(options.seed),
              options.iterations, options.warmup);
  std::printf("#%12s %12s %9s %12s %9s %9s %8s\n", "size", "count", "type", "time", "algbw",
              "busbw", "#wrong");
  std::printf("#%12s %12s %9s %12s %9s %9s\n", "(B)", "(elements)", "", "(us)", "(GB/s)", "(GB/s)");
  std::fflush(stdout);
}

void Report::add(const Result& result) {
  const double algorithm = bandwidth(result), bus = algorithm * (ranks_ - 1) / ranks_;
  const std::string wrong = result.wrong < 0 ? "N/A" : std::to_string(result.wrong);
  std::printf(" %12llu %12llu %9s %12.1f %9.4f %9.4f %8s\n",
              static_cast<unsigned long long>(result.size),
              static_cast<unsigned long long>(result.bytes_per_pair / options_.type_bytes()),
              options_.type.c_str(), median(result.times_us), algorithm, bus, wrong.c_str());
  std::fflush(stdout);
  results_.push_back(result);
}

void Report::finish(const std::string& carrier) const {
  std::printf("# carrier: %s\n", carrier.c_str());
  if (options_.json.empty()) return;
  nlohmann::json results = nlohmann::json::array();
  for (const Result& result : results_) {
    const auto [least, most] = std::minmax_element(result.times_us.begin(), result.times_us.end());
    const double algorithm = bandwidth(result);
    results.push_back({{"size", result.size},
                       {"bytes_per_pair", result.bytes_per_pair},
                       {"time_us_median", median(result.times_us)},
                       {"time_us_min", *least},
                       {"time_us_max", *most},
                       {"algbw", algorithm},
                       {"busbw", algorithm * (ranks_ - 1) / ranks_},
                       {"wrong", result.wrong},
                       {"busiest_node_bytes", result.busiest_node_bytes}});
  }
  const nlohmann::json whole = {
      {"ranks", ranks_},       {"nodes", nodes_},           {"pattern", options_.pattern.text()},
      {"seed", options_.seed}, {"datatype", options_.type}, {"iterations", options_.iterations},
      {"carrier", carrier},    {"results", results}};
  std::ofstream file(options_.json);
  file << whole.dump(2) << "\n";
  if (!file.flush()) moe::fail("cannot write " + options_.json);
}

}  // namespace alltoall
