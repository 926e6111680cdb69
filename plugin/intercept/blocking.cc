// SPDX-License-Identifier: Apache-2.0
#include "intercept/blocking.h"

#include <cstddef>

namespace railyard::intercept {
namespace {

constexpr int64_t kUnset = -1;
constexpr unsigned kConfigMagic = 0xcafebeef;

bool has_blocking(const ncclConfig_t& config) {
  return config.size >= offsetof(ncclConfig_t, blocking) + sizeof config.blocking;
}

}  // namespace

std::optional<bool> blocking_by_environment(const NcclEnv& environment) {
  const int64_t value = environment.number("NCCL_COMM_BLOCKING", kUnset);
  if (value != 0 && value != 1) return std::nullopt;
  return value == 1;
}

bool blocking_by_config(const ncclConfig_t* config, bool otherwise) {
  if (config == nullptr) return otherwise;
  // Whoever gives a config inherits nothing.
  return !has_blocking(*config) || config->blocking != 0;
}

bool refused_config(const ncclConfig_t* config) {
  if (config == nullptr) return false;
  if (config->magic != kConfigMagic) return true;
  return has_blocking(*config) && config->blocking != NCCL_CONFIG_UNDEF_INT &&
         config->blocking != 0 && config->blocking != 1;
}

}  // namespace railyard::intercept
