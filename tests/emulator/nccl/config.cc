// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <limits.h>
#include <string.h>

#include <algorithm>

#include "environment.h"
#include "result.h"
#include "version.h"

namespace railyard::emulator {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr int kMostChannels = 64;

/// A field with a range of values.
struct Field {
  const char* name;
  int ncclConfig_t::*value;
  unsigned since;  ///< NCCL_VERSION of the first writers that are believed
  int least, most;
};

constexpr Field kFields[] = {
    {"blocking", &ncclConfig_t::blocking, NCCL_VERSION(2, 14, 0), 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, NCCL_VERSION(2, 17, 0), 0, INT_MAX},
    {"minCTAs", &ncclConfig_t::minCTAs, NCCL_VERSION(2, 17, 0), 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, NCCL_VERSION(2, 17, 0), 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, 0, 0, 1},
    {"collnetEnable", &ncclConfig_t::collnetEnable, NCCL_VERSION(2, 27, 0), 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, NCCL_VERSION(2, 27, 0), 0, 2},
    {"shrinkShare", &ncclConfig_t::shrinkShare, NCCL_VERSION(2, 27, 0), 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, NCCL_VERSION(2, 27, 0), 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, NCCL_VERSION(2, 28, 0), 1,
     kMostChannels},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, NCCL_VERSION(2, 28, 0), 0, 1},
};

ncclResult_t check_fields(ncclConfig_t* config) {
  for (const Field& field : kFields) {
    int& value = config->*field.value;
    if (config->version < field.since) value = NCCL_CONFIG_UNDEF_INT;
    if (value == NCCL_CONFIG_UNDEF_INT || (value >= field.least && value <= field.most)) continue;
    return fail(ncclInvalidArgument, "config.%s must not be %d", field.name, value);
  }
  // The real one compares them even if only one is set.
  if (config->minCTAs <= config->maxCTAs) return ncclSuccess;
  return fail(ncclInvalidArgument, "config.minCTAs of %d is above maxCTAs of %d", config->minCTAs,
              config->maxCTAs);
}

void apply_environment(bool* blocking) {
  const auto value = number_variable("NCCL_COMM_BLOCKING");
  if (nccl_version() >= 21403 && (value == 0 || value == 1)) *blocking = value == 1;
}

}  // namespace

ncclResult_t read_config(const ncclConfig_t* config, bool* blocking) {
  if (config != nullptr) {
    ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
    known.magic = 0;
    size_t size = 0;
    ::memcpy(&size, config, sizeof size);
    ::memcpy(&known, config, std::min(size, sizeof known));
    if (known.magic != kConfigMagic) {
      return fail(ncclInvalidArgument, "config was not begun with NCCL_CONFIG_INITIALIZER");
    }
    ncclResult_t result = check_fields(&known);
    if (result != ncclSuccess) return result;
    if (known.blocking != NCCL_CONFIG_UNDEF_INT) *blocking = known.blocking == 1;
  }
  apply_environment(blocking);
  return ncclSuccess;
}

}  // namespace railyard::emulator
