// SPDX-License-Identifier: Apache-2.0
//
// Exported functions whose shape is that of CUDA 13.
#include "properties.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return with_driver([&]() -> CUresult {
    CUresult code = describe_device(properties, device);
    if (code == CUDA_SUCCESS) properties->hostNumaId = properties->deviceNumaId = -1;
    return code;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  return cudaStreamIsCapturing(stream, status);
}

}  // extern "C"
