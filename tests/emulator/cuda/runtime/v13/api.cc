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
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return capture_info(stream, status, id, graph, dependencies, edges, count);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                const cudaGraphEdgeData*, size_t count,
                                                unsigned flags) {
  return update_dependencies(stream, nodes, count, flags);
}

}  // extern "C"
