// SPDX-License-Identifier: Apache-2.0
//
// What takes the place of dlopen(), dlmopen(), dlsym() and dlvsym() in other objects' import
// tables.
//
// Those functions depend on who calls them. So a hook either answers by itself or *jumps* to the
// real function, which then sees the program as its caller.
#pragma once

namespace railyard::loader {

struct Hook {
  const char* name;
  const void* ours;
  const void* real;  ///< what railyard's own calls of that name reach
};

/// Null for names that are not hooked.
const Hook* hook_named(const char* name);

}  // namespace railyard::loader
