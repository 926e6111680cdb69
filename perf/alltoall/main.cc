// SPDX-License-Identifier: Apache-2.0
//
// alltoall_perf: measures all-to-all exchanges of whatever NCCL and CUDA it finds, checks what
// arrives, and says who carried it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "carrier.h"
#include "cuda_check.h"
#include "error.h"
#include "launch_environment.h"
#include "options.h"
#include "report.h"
#include "store.h"
#include "worker.h"

namespace alltoall {
namespace {

/// By which ranks tell which of them are on one node, as NCCL does.
uint64_t host_identity() {
  std::string name;
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') {
    name = id;
  } else {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
    name += host;
  }
  return std::hash<std::string>{}(name);
}

/// What one thread does. Only the one with rank 0 has a report.
class Measurement {
 public:
  Measurement(const Options& options, const Share& share, const ncclUniqueId& id)
      : options_(options), share_(share), worker_(options, share, id) {}

  void run(std::unique_ptr<Report>* report) {
    const uint64_t host = host_identity();
    const auto hosts = worker_.gather(repeated({host}));
    std::vector<int> node;
    std::vector<uint64_t> seen;
    for (const auto& given : hosts) {
      const auto found = std::find(seen.begin(), seen.end(), given.front());
      node.push_back(static_cast<int>(found - seen.begin()));
      if (found == seen.end()) seen.push_back(given.front());
    }
    if (share_.first == 0) {
      *report = std::make_unique<Report>(options_, share_.ranks, static_cast<int>(seen.size()));
    }
    for (uint64_t size = options_.min_bytes; size <= options_.max_bytes; size = next(size)) {
      const Result result = measure(size, node);
      if (share_.first == 0) (*report)->add(result);
      wrong_ += static_cast<uint64_t>(std::max<int64_t>(result.wrong, 0));
    }
    worker_.close();
  }

  uint64_t wrong() const { return wrong_; }

 private:
  std::vector<std::vector<uint64_t>> repeated(const std::vector<uint64_t>& values) const {
    return std::vector<std::vector<uint64_t>>(static_cast<size_t>(share_.count), values);
  }

  uint64_t next(uint64_t size) const {
    if (options_.factor == 0) return size + options_.step_bytes;
    return std::max(size + 1, static_cast<uint64_t>(static_cast<double>(size) * options_.factor));
  }

  Result measure(uint64_t size, const std::vector<int>& node) {
    const Matrix bytes =
        options_.pattern.bytes(share_.ranks, size, options_.type_bytes(), options_.seed);
    worker_.prepare(bytes);
    for (int i = 0; i < options_.warmup; ++i) worker_.exchange();
    std::vector<uint64_t> times;
    for (int i = 0; i < options_.iterations; ++i) times.push_back(worker_.exchange());
    Result result;
    result.size = size;
    result.bytes_per_pair = size / static_cast<uint64_t>(share_.ranks);
    result.busiest_node_bytes = busiest_node_bytes(bytes, node);
    result.times_us.resize(times.size());
    for (const auto& given : worker_.gather(repeated(times))) {
      for (size_t i = 0; i < given.size(); ++i) {
        result.times_us[i] = std::max(result.times_us[i], static_cast<double>(given[i]) / 1e3);
      }
    }
    if (!options_.check) return result;
    std::vector<std::vector<uint64_t>> own;
    for (const uint64_t wrong : worker_.exchange_checked(++checks_)) own.push_back({wrong});
    result.wrong = 0;
    for (const auto& given : worker_.gather(own))
      result.wrong += static_cast<int64_t>(given.front());
    return result;
  }

  const Options& options_;
  const Share share_;
  Worker worker_;
  uint64_t checks_ = 0, wrong_ = 0;
};

/// Fails if another one than was expected carried anything of these ranks between nodes.
void compare_carrier(const Options& options, const Counters::Bytes& bytes) {
  if (options.expect.empty()) return;
  const std::string carrier = bytes.carrier();
  if (carrier == options.expect || carrier == "none") return;
  moe::fail("messages between nodes were to be carried by " + options.expect + ", but it was " +
            carrier + ": " + std::to_string(bytes.railyard.value_or(0)) + " bytes by railyard, " +
            std::to_string(bytes.nccl.value_or(0)) + " by NCCL");
}

int run(const Options& options) {
  const moe::LaunchEnvironment launch =
      moe::read_launch_environment([](const char* name) { return std::getenv(name); });
  const Counters counters;
  const ncclUniqueId id = moe::meet(launch, std::chrono::seconds(options.join_timeout_s));
  const int per_process = options.threads * options.gpus;
  int devices = 0;
  moe::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  const int first_device = devices > 1 ? launch.local_rank * per_process : 0;
  if (first_device + per_process > devices) {
    moe::fail_usage("CUDA sees " + std::to_string(devices) + " GPUs here; local rank " +
                    std::to_string(launch.local_rank) + " with -t times -g of " +
                    std::to_string(per_process) + " needs number " +
                    std::to_string(first_device + per_process - 1));
  }
  std::unique_ptr<Report> report;
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < options.threads; ++t) {
    const Share share{launch.rank * per_process + t * options.gpus, options.gpus,
                      launch.ranks * per_process, first_device + t * options.gpus};
    threads.emplace_back([&, share] {
      try {
        Measurement measurement(options, share, id);
        measurement.run(&report);
        wrong += measurement.wrong();
      } catch (const std::exception& error) {
        // The other threads may wait for this one in NCCL for ever.
        std::fprintf(stderr, "alltoall_perf: %s\n", error.what());
        std::_Exit(moe::kExitFailure);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> ranks;
  for (int i = 0; i < per_process; ++i) ranks.push_back(launch.rank * per_process + i);
  const Counters::Bytes bytes = counters.read(ranks);
  if (report) report->finish(bytes.carrier());
  compare_carrier(options, bytes);
  if (wrong > 0 && launch.rank == 0) moe::fail("what arrived is not what was sent");
  return wrong > 0 ? moe::kExitFailure : 0;
}

}  // namespace
}  // namespace alltoall

int main(int argc, char** argv) {
  try {
    alltoall::Options options;
    int status = 0;
    if (!alltoall::parse(argc, argv, &options, &status)) return status;
    return alltoall::run(options);
  } catch (const moe::Error& error) {
    std::fprintf(stderr, "alltoall_perf: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "alltoall_perf: %s\n", error.what());
    return moe::kExitFailure;
  }
}
