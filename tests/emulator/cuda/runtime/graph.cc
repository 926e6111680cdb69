// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: capture, graphs, user objects.
#include "runtime.h"

namespace railyard::emulator {

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));

cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status,
                         unsigned long long* id, cudaGraph_t* graph,
                         const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                         size_t* count) {
  return with_context([&]() -> CUresult {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    const CUgraphEdgeData* data = nullptr;
    CUresult code =
        cuStreamGetCaptureInfo_v3(stream, &state, &number, graph, dependencies, &data, count);
    if (code != CUDA_SUCCESS) return code;
    *status = static_cast<cudaStreamCaptureStatus>(state);
    if (state != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id != nullptr) *id = number;
    if (edges != nullptr) *edges = reinterpret_cast<const cudaGraphEdgeData*>(data);
    return CUDA_SUCCESS;
  });
}

cudaError_t update_dependencies(cudaStream_t stream, cudaGraphNode_t* nodes, size_t count,
                                unsigned flags) {
  return with_context(
      [&] { return cuStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags); });
}

}  // namespace railyard::emulator

using namespace railyard::emulator;  // NOLINT: a file of exports only

extern "C" {

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return with_context([&]() -> CUresult {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult code = cuStreamIsCapturing(stream, &state);
    if (code == CUDA_SUCCESS) *status = static_cast<cudaStreamCaptureStatus>(state);
    return code;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return with_context(
      [&] { return cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return with_context([&] { return cuStreamEndCapture(stream, graph); });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return with_driver([&]() -> CUresult {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto exchanged = static_cast<CUstreamCaptureMode>(*mode);
    CUresult code = cuThreadExchangeStreamCaptureMode(&exchanged);
    if (code == CUDA_SUCCESS) *mode = static_cast<cudaStreamCaptureMode>(exchanged);
    return code;
  });
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return with_context([&] { return cuGraphCreate(graph, flags); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return with_context([&] { return cuGraphDestroy(graph); });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* after, size_t count) {
  return with_context([&] { return cuGraphAddEmptyNode(node, graph, after, count); });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* after, size_t count,
                                 const cudaHostNodeParams* parameters) {
  return with_context([&]() -> CUresult {
    if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_HOST_NODE_PARAMS same{};
    same.fn = parameters->fn;
    same.userData = parameters->userData;
    return cuGraphAddHostNode(node, graph, after, count, &same);
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return with_context([&] { return cuGraphGetNodes(graph, nodes, count); });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return with_context([&] { return cuGraphGetRootNodes(graph, nodes, count); });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return with_context([&]() -> CUresult {
    CUgraphNodeType same{};
    CUresult code = cuGraphNodeGetType(node, type == nullptr ? nullptr : &same);
    if (code == CUDA_SUCCESS) *type = static_cast<cudaGraphNodeType>(same);
    return code;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return with_context([&] { return cuGraphInstantiateWithFlags(exec, graph, flags); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return with_context([&] { return cuGraphUpload(exec, stream); });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return with_context([&] { return cuGraphLaunch(exec, stream); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return with_context([&] { return cuGraphExecDestroy(exec); });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy,
                                 unsigned references, unsigned flags) {
  return with_context([&] { return cuUserObjectCreate(object, data, destroy, references, flags); });
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned references) {
  return with_context([&] { return cuUserObjectRetain(object, references); });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned references) {
  return with_context([&] { return cuUserObjectRelease(object, references); });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                      unsigned references, unsigned flags) {
  return with_context([&] { return cuGraphRetainUserObject(graph, object, references, flags); });
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                       unsigned references) {
  return with_context([&] { return cuGraphReleaseUserObject(graph, object, references); });
}

}  // extern "C"
