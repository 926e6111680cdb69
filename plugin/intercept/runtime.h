// SPDX-License-Identifier: Apache-2.0
//
// What the interception works with, process-wide. Tests put other parts in.
#pragma once

#include <optional>
#include <span>

#include "base/status.h"
#include "comm/manager.h"
#include "exchange/engine.h"
#include "intercept/nccl_library.h"
#include "intercept/outstanding.h"
#include "intercept/report.h"
#include "intercept/strangers.h"

namespace railyard::intercept {

/// The calls on an Engine, as a seam.
class EngineCalls {
 public:
  virtual ~EngineCalls() = default;
  virtual Status launch(exchange::Engine& engine, const exchange::Exchange& exchange,
                        std::span<const cudaStream_t> streams) const = 0;
  /// Whether one group may use all these streams.
  virtual Status check_streams(const exchange::Engine& engine,
                               std::span<const cudaStream_t> streams) const = 0;
  virtual bool may_use(const exchange::Engine& engine, const void* memory) const = 0;
  virtual Status begin_outside(exchange::Engine& engine,
                               std::span<const cudaStream_t> streams) const = 0;
  virtual Status end_outside(exchange::Engine& engine,
                             std::span<const cudaStream_t> streams) const = 0;
  virtual Status error(const exchange::Engine& engine) const = 0;
  virtual Status farewell(exchange::Engine& engine) const = 0;
};

/// Thread-safe. No lock is ever held while NCCL, a join or an engine may wait.
struct Runtime {
  const NcclLibrary& nccl;
  comm::Manager& manager;
  const EngineCalls& engines;
  std::optional<bool> always_blocking{};  ///< what NCCL_COMM_BLOCKING sets for all communicators
  bool check_pointers = false;            ///< NCCL looks at the memory it is given
  Strangers& strangers = Strangers::instance();
  LastError last_error{nccl};
  Outstanding outstanding{};

  /// Of this process and copy of NCCL, over the Manager; made at the first call, never destroyed. A
  /// forked child has its own.
  static Runtime& instance(const NcclLibrary& nccl);
};

}  // namespace railyard::intercept
