// SPDX-License-Identifier: Apache-2.0
#include "intercept/runtime.h"

#include <strings.h>

#include <array>
#include <string>

#include "base/fork.h"
#include "base/log.h"
#include "intercept/blocking.h"

namespace railyard::intercept {

namespace {

class RealEngineCalls final : public EngineCalls {
 public:
  Status launch(exchange::Engine& engine, const exchange::Exchange& exchange,
                std::span<const cudaStream_t> streams) const override {
    return engine.launch(exchange, streams);
  }
  Status check_streams(const exchange::Engine& engine,
                       std::span<const cudaStream_t> streams) const override {
    return engine.check_streams(streams);
  }
  bool may_use(const exchange::Engine& engine, const void* memory) const override {
    return engine.may_use(memory);
  }
  Status begin_outside(exchange::Engine& engine,
                       std::span<const cudaStream_t> streams) const override {
    return engine.begin_outside(streams);
  }
  Status end_outside(exchange::Engine& engine,
                     std::span<const cudaStream_t> streams) const override {
    return engine.end_outside(streams);
  }
  Status error(const exchange::Engine& engine) const override { return engine.error(); }
  Status farewell(exchange::Engine& engine) const override { return engine.farewell(); }
};

/// NCCL_CHECK_POINTERS=1, and from 2.29.7 on also NCCL_CHECK_MODE.
bool checks_pointers(const NcclEnv& environment, int version) {
  constexpr int kFirstWithCheckMode = 22907;
  if (environment.number("NCCL_CHECK_POINTERS", 0) == 1) return true;
  const std::string mode = environment.text("NCCL_CHECK_MODE");
  return version >= kFirstWithCheckMode && (strcasecmp(mode.c_str(), "DEBUG_LOCAL") == 0 ||
                                            strcasecmp(mode.c_str(), "DEBUG_GLOBAL") == 0);
}

}  // namespace

Runtime& Runtime::instance(const NcclLibrary& nccl) {
  static auto* const runtimes = new std::array<PerProcess<Runtime>, NcclLibrary::kMostCopies>;
  return (*runtimes)[nccl.index].get([&nccl] {
    comm::Manager& joined = comm::Manager::instance();  // first: it sets up logging
    int version = 0;
    forward(nccl.ncclGetVersion, &version);
    log::info("intercepting NCCL %d in %s", version, nccl.path.c_str());
    const NcclEnv environment = NcclEnv::load(process_environment());
    return new Runtime{nccl, joined, *new RealEngineCalls, blocking_by_environment(environment),
                       checks_pointers(environment, version)};
  });
}

}  // namespace railyard::intercept
