// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: stream capture.
#include "capture.h"
#include "exports.h"
#include "thread.h"

#undef cuStreamUpdateCaptureDependencies

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

CUresult get_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                  const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CaptureInfo info;
    if (CUresult result = capture_info(stream, &info); result != CUDA_SUCCESS) return result;
    *status = info.status;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id != nullptr) *id = info.id;
    if (graph != nullptr) *graph = info.graph;
    if (dependencies != nullptr) *dependencies = info.dependencies;
    if (edges != nullptr) *edges = info.edges;
    if (count != nullptr) *count = info.count;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode*, size_t, unsigned);

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return get_info(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) {
  return get_info(handle, status, id, graph, dependencies, nullptr, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
  return get_info(handle, status, id, graph, dependencies, edges, count);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes, size_t count,
                                           unsigned flags) {
  return with_stream(handle, [&](StreamObject& stream) {
    return update_dependencies(stream, nodes, count, flags);
  });
}

// Edges carry no data here.
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* nodes,
                                              const CUgraphEdgeData*, size_t count,
                                              unsigned flags) {
  return cuStreamUpdateCaptureDependencies(handle, nodes, count, flags);
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return with_stream(handle, [&](StreamObject& stream) { return begin_capture(stream, mode); });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : end_capture(stream, graph);
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_driver([&]() -> CUresult {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(*mode, this_thread().capture_mode);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
