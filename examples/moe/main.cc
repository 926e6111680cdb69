// SPDX-License-Identifier: Apache-2.0
// moe_train: a byte-level mixture-of-experts language model, trained with its experts spread over
// the ranks of an NCCL communicator.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "cpu/cpu_compute.h"
#include "cuda_check.h"
#include "data.h"
#include "error.h"
#include "group.h"
#include "launch_environment.h"
#include "options.h"
#include "report.h"
#include "store.h"
#include "trainer.h"

namespace {

class Stream final {
 public:
  Stream() { moe::check(cudaStreamCreate(&stream_), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Some launchers show each rank one GPU only, some all of the node.
void choose_device(int local_rank) {
  int devices = 0;
  moe::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (devices == 0) moe::fail_usage("CUDA sees no GPU: start where there is one");
  moe::check(cudaSetDevice(local_rank % devices), "cudaSetDevice");
}

struct Outcome {
  float validation_loss = 0;
  std::string parameters_sha256;
};

Outcome run(int steps, moe::Trainer& trainer, std::optional<moe::Report>& report) {
  for (int step = 1; step <= steps; ++step) {
    const moe::StepRecord record = trainer.step(step);
    if (report) report->add(record);
  }
  const float validation_loss = trainer.validate();
  return {validation_loss, trainer.parameters_sha256()};
}

void train(moe::Options& options, moe::LaunchEnvironment launch) {
  options.model.experts = moe::fit_experts(options, launch);
  if (options.store_port != 0) launch.store_port = options.store_port;
  const moe::TextSampler text(moe::read_text(options.data), options.model.length,
                              options.model.seed);
  std::optional<moe::Report> report;
  if (launch.rank == 0) report.emplace(options, launch.ranks);

  choose_device(launch.local_rank);
  const Stream stream;
  const std::unique_ptr<moe::Compute> compute = moe::make_cpu_compute(stream.get());
  moe::Group group(moe::meet(launch, std::chrono::seconds(options.join_timeout_s)), launch.rank,
                   launch.ranks, stream.get());
  moe::Trainer trainer(options.model, options.learning_rate, text, *compute, group);
  Outcome outcome;
  try {
    outcome = run(options.steps, trainer, report);
    group.close();
  } catch (...) {
    group.abort();  // frees work that waits for peers before its buffers go
    throw;
  }
  if (report) report->finish(outcome.validation_loss, outcome.parameters_sha256);
}

}  // namespace

int main(int argc, char** argv) {
  int rank = 0;
  try {
    moe::Options options;
    if (moe::parse_options(argc, argv, options) == moe::Parsed::kDone) return EXIT_SUCCESS;
    const moe::LaunchEnvironment launch =
        moe::read_launch_environment([](const char* name) { return std::getenv(name); });
    rank = launch.rank;
    train(options, launch);
    return EXIT_SUCCESS;
  } catch (const moe::Error& error) {
    std::fprintf(stderr, "moe_train: rank %d: %s\n", rank, error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moe_train: rank %d: %s\n", rank, error.what());
    return moe::kExitFailure;
  }
}
