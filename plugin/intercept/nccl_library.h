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

#include <nccl.h>

namespace railyard::intercept {

// clang-format off
/// Functions returning ncclResult_t that railyard replaces or calls. Any may be absent from an
/// older library.
#define RY_NCCL_FUNCTIONS(X)                                                                      \
  X(ncclGetVersion, (int*))                                                                       \
  X(ncclGetUniqueId, (ncclUniqueId*))                                                             \
  X(ncclCommInitRank, (ncclComm_t*, int, ncclUniqueId, int))                                      \
  X(ncclCommInitRankConfig, (ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*))                 \
  X(ncclCommInitRankScalable, (ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*))         \
  X(ncclCommInitAll, (ncclComm_t*, int, const int*))                                              \
  X(ncclCommShrink, (ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int))                     \
  X(ncclCommGetUniqueId, (ncclComm_t, ncclUniqueId*))                                             \
  X(ncclCommGrow, (ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*))        \
  X(ncclCommSuspend, (ncclComm_t, int))                                                           \
  X(ncclCommResume, (ncclComm_t))                                                                 \
  X(ncclCommUserRank, (ncclComm_t, int*))                                                         \
  X(ncclCommCuDevice, (ncclComm_t, int*))                                                         \
  X(ncclGather, (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))      \
  X(ncclScatter, (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))     \
  X(ncclCommSplit, (ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*))                            \
  X(ncclCommFinalize, (ncclComm_t))                                                               \
  X(ncclCommDestroy, (ncclComm_t))                                                                \
  X(ncclCommAbort, (ncclComm_t))                                                                  \
  X(ncclCommRevoke, (ncclComm_t, int))                                                            \
  X(ncclCommGetAsyncError, (ncclComm_t, ncclResult_t*))                                           \
  X(ncclCommCount, (ncclComm_t, int*))                                                            \
  X(ncclGroupStart, ())                                                                           \
  X(ncclGroupEnd, ())                                                                             \
  X(ncclGroupSimulateEnd, (ncclSimInfo_t*))                                                       \
  X(ncclSend, (const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))               \
  X(ncclRecv, (void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                     \
  X(ncclAlltoAll, (const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))
// clang-format on

struct NcclLibrary {
#define RY_MEMBER(name, signature) ncclResult_t(*name) signature = nullptr;
  RY_NCCL_FUNCTIONS(RY_MEMBER)
#undef RY_MEMBER
  const char* (*ncclGetLastError)(ncclComm_t) = nullptr;

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

/// Calls a real function; ncclInvalidUsage where the library has none.
template <typename... Parameters, typename... Args>
ncclResult_t forward(ncclResult_t (*function)(Parameters...), Args... args) {
  if (function == nullptr) return ncclInvalidUsage;
  const bool outer = inside_nccl();
  inside_nccl() = true;
  const ncclResult_t result = function(args...);
  inside_nccl() = outer;
  return result;
}

/// Bytes of one element, 0 for a type railyard does not know.
uint64_t type_bytes(ncclDataType_t type);

}  // namespace railyard::intercept
