// SPDX-License-Identifier: Apache-2.0
// Turns the status codes of the CUDA runtime and of NCCL into errors that name the failed call.
#pragma once

#include <string>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "error.h"

namespace moe {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(status));
}

inline void check(ncclResult_t status, const char* what) {
  if (status == ncclSuccess) return;
  std::string message = std::string(what) + ": " + ncclGetErrorString(status);
  const char* detail = ncclGetLastError(nullptr);
  if (detail != nullptr && detail[0] != '\0') message += std::string(" (") + detail + ")";
  fail(message);
}

}  // namespace moe
