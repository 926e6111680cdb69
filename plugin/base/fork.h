// SPDX-License-Identifier: Apache-2.0
//
// What a forked child of the process inherits from railyard: nothing it could keep alive.
#pragma once

namespace railyard {

/// From now on, children made by fork() close every descriptor that a UniqueFd owns. Whatever holds
/// one is of no use there. Thread-safe; further calls do nothing.
void close_in_children();

}  // namespace railyard
