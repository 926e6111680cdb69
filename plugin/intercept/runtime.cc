// SPDX-License-Identifier: Apache-2.0
#include "intercept/runtime.h"

#include "base/log.h"

namespace railyard::intercept {

Runtime& Runtime::instance(const NcclLibrary& nccl) {
  static Runtime* const runtime = [&nccl] {
    comm::Manager& manager = comm::Manager::instance();  // first: it sets up logging
    int version = 0;
    forward(nccl.ncclGetVersion, &version);
    log::info("intercepting NCCL %d in %s", version, nccl.path.c_str());
    return new Runtime{nccl, manager, *new EngineCalls};
  }();
  return *runtime;
}

Status EngineCalls::launch(exchange::Engine& engine, const exchange::Exchange& exchange,
                           std::span<const CUstream> streams) const {
  return engine.launch(exchange, streams);
}
Status EngineCalls::error(const exchange::Engine& engine) const { return engine.error(); }
Status EngineCalls::farewell(exchange::Engine& engine) const { return engine.farewell(); }
void EngineCalls::abort(exchange::Engine& engine) const { engine.abort(); }

}  // namespace railyard::intercept
