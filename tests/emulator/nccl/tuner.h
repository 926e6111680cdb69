// SPDX-License-Identifier: Apache-2.0
//
// The tuner plugin (NCCL_TUNER_PLUGIN) of one communicator: opened near the end of its creation,
// asked before each of the five classic collectives, never for messages. What it answers changes
// nothing here but must be sound; an error fails what it was asked for, as in NCCL.
//
// The plugin is looked for once in a process and stays loaded.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "bootstrap.h"
#include "plugin_abi.h"
#include "task.h"

namespace railyard::emulator {

class Tuner {
 public:
  /// `table` holds all ranks. Failure fails the creation.
  ncclResult_t open(uint64_t communicator, const std::vector<Record>& table);
  ncclResult_t ask(const Task& task) const;
  void close();

 private:
  using Plugin =
      std::variant<std::monostate, const plugin::TunerV1*, const plugin::TunerV2*,
                   const plugin::TunerV3*, const plugin::TunerV4*, const plugin::TunerV5*>;
  static Plugin load();
  static Plugin find();
  static Plugin find_first();

  Plugin plugin_;
  void* context_ = nullptr;
  uint64_t ranks_ = 0;
};

}  // namespace railyard::emulator
