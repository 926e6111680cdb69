// SPDX-License-Identifier: Apache-2.0
//
// The real functions of the NCCL library that this process uses.
//
// The library is found among the objects already loaded, since programs often load it where a
// search for the next definition does not look (RTLD_LOCAL). Of each function the pncclX name is
// preferred: the library calls some of its ncclX names itself, through names that we replace.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <nccl.h>

#include "intercept/functions.h"

namespace railyard::intercept {

struct NcclLibrary {
  // Those of NCCL's functions that railyard replaces or calls. Any may be absent from an older
  // library.
#define RY_HANDLED(name, first, handler, parameters, arguments) \
  ncclResult_t(*name) parameters = nullptr;
#define RY_TEXT(name, first, handler, parameters, arguments) const char*(*name)parameters = nullptr;
#define RY_CALLED(name, first, parameters) ncclResult_t(*name) parameters = nullptr;
  RY_NCCL_FUNCTIONS(RY_HANDLED, RY_TEXT, RY_CALLED, RY_NO_ROW)
#undef RY_HANDLED
#undef RY_TEXT
#undef RY_CALLED

  std::string path;
  uintptr_t begin = 0, end = 0;  ///< where its code lies; equal if NCCL is part of another library

  /// Whether code at `address` belongs to NCCL.
  bool contains(const void* address) const {
    const auto value = reinterpret_cast<uintptr_t>(address);
    return begin <= value && value < end;
  }

  /// Null, having said so once on stderr, as long as no NCCL is loaded. Found once, then kept: the
  /// library stays loaded. Thread-safe.
  static const NcclLibrary* get();
};

/// True while this thread is inside a real function: what NCCL then calls of itself passes.
bool& inside_nccl();

/// What a call returns that the library cannot answer.
inline const char* refusal(const char*) { return ""; }
inline ncclResult_t refusal(ncclResult_t) { return ncclInvalidUsage; }

/// Calls a real function, refusal() where the library has none.
template <typename Returned, typename... Parameters, typename... Args>
Returned forward(Returned (*function)(Parameters...), Args... args) {
  if (function == nullptr) return refusal(Returned{});
  bool& inside = inside_nccl();
  const bool outer = std::exchange(inside, true);
  const Returned result = function(args...);
  inside = outer;
  return result;
}

/// Bytes of one element, 0 for a type railyard does not know.
uint64_t type_bytes(ncclDataType_t type);

}  // namespace railyard::intercept
