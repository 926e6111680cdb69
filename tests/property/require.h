// SPDX-License-Identifier: Apache-2.0
//
// Calls of CUDA and NCCL that must succeed, else the process says which one failed, and ends.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace property {

/// Ends the whole process, other ranks in it included.
[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "exchange_fuzz: %s\n", what.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

inline void require(cudaError_t result, const char* call) {
  if (result != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(result));
}

inline void require(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  fail(std::string(call) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

}  // namespace property

#define REQUIRE(call) ::property::require((call), #call)
