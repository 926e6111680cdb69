// SPDX-License-Identifier: Apache-2.0
//
// Threads that a program does not know it has: they take none of its signals.
#pragma once

#include <functional>
#include <thread>

#include "base/status.h"

namespace railyard {

/// `name` (up to 15 characters) shows in debuggers and top. Fails where the system refuses another
/// thread.
Result<std::thread> start_service_thread(const char* name, std::function<void()> body);

}  // namespace railyard
