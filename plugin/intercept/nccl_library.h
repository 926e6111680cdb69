// SPDX-License-Identifier: Apache-2.0
//
// The real functions of the NCCL libraries that this process uses.
//
// Libraries are found among the objects already loaded, since programs often load them where a
// search for the next definition does not look (RTLD_LOCAL). Of each function the pncclX name is
// preferred: the library calls some of its ncclX names itself, through names that we replace.
//
// A process may hold several copies (one of a framework, one of the system). They are kept apart:
// whoever calls a copy gets that copy's functions. What defines NCCL's names without being NCCL (a
// library with NCCL inside, a tracing layer) counts as a copy too.
#pragma once

#include <array>
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

  /// Where programs find the handled functions in it; null: it lacks that one.
  std::array<const void*, kFunctions> exported{};

  size_t index = 0;  ///< of this copy
  std::string path;
  uintptr_t begin = 0, end = 0;  ///< where its code lies; equal if NCCL is part of another library
  uintptr_t whole_begin = 0, whole_end = 0;  ///< all of the object

  /// Whether code at `address` belongs to NCCL.
  bool contains(const void* address) const {
    const auto value = reinterpret_cast<uintptr_t>(address);
    return begin <= value && value < end;
  }
  /// Whether it lies in the same object, be that NCCL's own or not.
  bool shares_object_with(const void* address) const {
    const auto value = reinterpret_cast<uintptr_t>(address);
    return whole_begin <= value && value < whole_end;
  }

  /// More copies than this are left alone.
  static constexpr size_t kMostCopies = 4;

  /// Looks for copies that have been loaded since, and keeps them loaded. Thread-safe, like all
  /// that follows.
  static void refresh();
  static size_t copies();
  /// REQUIRES: index < copies(), or < kMostCopies in a wrapper of that copy.
  static const NcclLibrary& copy(size_t index);
  /// The copy that defines a handled function at this address; null if none does.
  static const NcclLibrary* defining(const void* function);
  /// The copy whose functions code at `caller` would reach by name if railyard were not here. Null,
  /// having said so once on stderr, as long as no NCCL is loaded.
  static const NcclLibrary* reached_from(const void* caller);
  /// The same without a word.
  static const NcclLibrary* find_from(const void* caller);
};

/// Exported by files with railyard, and by nothing else.
constexpr const char* kOwnName = "railyard_instance";

/// Whether programs find railyard's exported names before NCCL's, as when it was preloaded.
bool in_global_scope();

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
