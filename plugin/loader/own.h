// SPDX-License-Identifier: Apache-2.0
//
// Which code is railyard's own.
#pragma once

namespace railyard::loader {

/// Whether the address lies in the object that holds railyard. Thread-safe.
bool is_own_code(const void* address);

}  // namespace railyard::loader
