// SPDX-License-Identifier: Apache-2.0
//
// What the hooks of dlopen() and dlsym() say. Thread-safe; never disturb what dlerror() is going to
// tell the program.
#pragma once

#include <cstdint>

namespace railyard::loader {

/// Returned in two registers. {} gives nothing.
struct Answer {
  void* value;
  uint64_t given;  ///< 0: ask the real function
};

/// Loads and looks at what was loaded, where it makes no difference who asks; else that is done by
/// the next call of any of these.
Answer answer_dlopen(const char* file, int mode, const void* caller);
/// Railyard's wrappers for NCCL's functions.
Answer answer_dlsym(void* handle, const char* name, const void* caller);
/// For calls that are always left to the real function.
Answer answer_later();

}  // namespace railyard::loader
