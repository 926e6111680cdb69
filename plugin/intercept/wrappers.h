// SPDX-License-Identifier: Apache-2.0
//
// What programs are given in place of NCCL's functions, where they are given addresses: in import
// tables and by dlsym. Each copy of NCCL has wrappers of its own.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "intercept/functions.h"

namespace railyard::intercept {

/// Nothing for names that are not handled.
std::optional<Function> function_named(std::string_view name);

/// REQUIRES: copy < NcclLibrary::kMostCopies.
const void* wrapper(Function function, size_t copy);

/// Whether it is one of those.
bool is_wrapper(const void* address);

}  // namespace railyard::intercept
