// SPDX-License-Identifier: Apache-2.0
#include "intercept/blocking.h"

#include <cstddef>

namespace railyard::intercept {
namespace {

constexpr int64_t kUnset = -1;

}  // namespace

std::optional<bool> blocking_by_environment(const NcclEnv& environment) {
  const int64_t value = environment.number("NCCL_COMM_BLOCKING", kUnset);
  if (value != 0 && value != 1) return std::nullopt;
  return value == 1;
}

bool blocking_by_config(const ncclConfig_t* config, bool otherwise) {
  if (config == nullptr) return otherwise;
  // Whoever gives a config inherits nothing.
  constexpr size_t kNeeded = offsetof(ncclConfig_t, blocking) + sizeof config->blocking;
  return config->size < kNeeded || config->blocking != 0;
}

}  // namespace railyard::intercept
