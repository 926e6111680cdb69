// SPDX-License-Identifier: Apache-2.0
//
// Whether a communicator is going to be a blocking one, by NCCL's rules.
#pragma once

#include <optional>

#include <nccl.h>

#include "base/nccl_env.h"

namespace railyard::intercept {

/// What NCCL_COMM_BLOCKING says for all communicators of the process, if it says anything.
std::optional<bool> blocking_by_environment(const NcclEnv& environment);

/// What a program's config says. It may be of another NCCL release, with fewer fields or more;
/// without one `otherwise` holds.
bool blocking_by_config(const ncclConfig_t* config, bool otherwise);

/// Whether NCCL refuses the config before it talks to other ranks.
bool refused_config(const ncclConfig_t* config);

}  // namespace railyard::intercept
