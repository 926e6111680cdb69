// SPDX-License-Identifier: Apache-2.0
//
// Reads ncclConfig_t as NCCL does: at the size its writer knew, fields newer than the writer's
// version ignored, all values checked; the environment rules over it.
#pragma once

#include <nccl.h>

namespace railyard::emulator {

/// `*blocking` keeps its value where neither `config`, which may be null, nor the environment says
/// anything. ncclInvalidArgument for a config that was not initialised or has values out of range.
ncclResult_t read_config(const ncclConfig_t* config, bool* blocking);

}  // namespace railyard::emulator
