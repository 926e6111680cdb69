// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: stream capture. Nothing can be captured yet, and every stream says so.
#include "context.h"
#include "exports.h"
#include "thread.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

extern "C" {

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return with_stream(handle,
                     [&](StreamObject&) { return store(status, CU_STREAM_CAPTURE_STATUS_NONE); });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**, size_t*) {
  return cuStreamIsCapturing(handle, status);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**, const CUgraphEdgeData**,
                                   size_t*) {
  return cuStreamIsCapturing(handle, status);
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode) {
  return with_stream(handle, [](StreamObject&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return with_stream(handle, [&](StreamObject&) {
    return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_ILLEGAL_STATE;
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
