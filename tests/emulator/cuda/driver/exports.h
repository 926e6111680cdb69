// SPDX-License-Identifier: Apache-2.0
//
// For the files that define exported functions: declarations of those which cuda.h hides behind a
// newer version of the same name, and a way to return a value.
#pragma once

#include <cuda.h>

extern "C" {
CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);
CUresult cuCtxCreate_v3(CUcontext*, CUexecAffinityParam*, int, unsigned, CUdevice);
CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                   const CUgraphNode**, size_t*);
}

namespace railyard::emulator {

template <typename T>
CUresult store(T* to, T value) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *to = value;
  return CUDA_SUCCESS;
}

}  // namespace railyard::emulator
