// SPDX-License-Identifier: Apache-2.0
//
// For the files that define the runtime API: it is a thin layer over the driver API, whose errors
// have the same numbers. Like CUDA's, it makes the primary context of the chosen device (at first
// device 0) current when a thread first needs one.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace railyard::emulator {

/// Keeps an error for cudaGetLastError and returns it.
cudaError_t fail(cudaError_t error);
inline cudaError_t result(CUresult code) {
  return code == CUDA_SUCCESS ? cudaSuccess : fail(static_cast<cudaError_t>(code));
}

/// Initialises the driver.
CUresult start();
/// Makes sure that some context is current in this thread.
CUresult ensure_context();
/// Makes the primary context of `device` current.
CUresult use_device(int device);
/// The device of the calling thread.
int chosen_device();
/// The primary context of `device` was reset.
void forget_device(int device);

/// Runs `f()`, which returns a CUresult, once the driver is initialised.
template <typename F>
cudaError_t with_driver(F f) {
  CUresult code = start();
  return result(code == CUDA_SUCCESS ? f() : code);
}

/// Runs `f()`, which returns a CUresult, with a context current.
template <typename F>
cudaError_t with_context(F f) {
  CUresult code = ensure_context();
  return result(code == CUDA_SUCCESS ? f() : code);
}

/// cudaStreamGetCaptureInfo in its newest shape, which the older ones are parts of.
cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status,
                         unsigned long long* id, cudaGraph_t* graph,
                         const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                         size_t* count);
cudaError_t update_dependencies(cudaStream_t stream, cudaGraphNode_t* nodes, size_t count,
                                unsigned flags);

inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace railyard::emulator
