// SPDX-License-Identifier: Apache-2.0
//
// Managers for given environments. A process has one, Manager::instance(); tests make several to
// act as several processes.
#pragma once

#include "base/environment.h"
#include "comm/manager.h"

namespace railyard::comm {

/// Configures the log, and warns about what is wrong in the environment. The manager lives as long
/// as the process.
Manager& make_manager(const Environment& environment);

}  // namespace railyard::comm
