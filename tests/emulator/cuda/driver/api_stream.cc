// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: streams, events, host functions.
#include "capture.h"
#include "context.h"
#include "device.h"
#include "event.h"
#include "exports.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return with_context([&](Context& context) -> CUresult {
    if (stream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto kind = flags == CU_STREAM_NON_BLOCKING ? StreamObject::Kind::kNonBlocking
                                                : StreamObject::Kind::kBlocking;
    int clamped = priority > 0 ? 0 : priority < kGreatestPriority ? kGreatestPriority : priority;
    return store(stream, create_stream(context, kind, clamped));
  });
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy(CUstream stream) {
  return with_driver([&] { return destroy_stream(stream); });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return with_stream(handle, [](StreamObject& stream) -> CUresult {
    if (CUresult result = refuse_capture(stream); result != CUDA_SUCCESS) return result;
    stream.synchronize();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return with_stream(handle, [](StreamObject& stream) -> CUresult {
    if (CUresult result = refuse_capture(stream); result != CUDA_SUCCESS) return result;
    return stream.idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(handle, [&](StreamObject& s) { return store(priority, int{s.priority}); });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return with_stream(handle, [&](StreamObject& stream) {
    bool blocking = stream.kind != StreamObject::Kind::kNonBlocking;
    return store(flags, unsigned{blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING});
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return with_stream(handle, [&](StreamObject& stream) {
    return store(id, static_cast<unsigned long long>(stream.id));
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return with_stream(handle, [&](StreamObject& s) { return store(context, s.context->handle()); });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return with_stream(handle,
                     [&](StreamObject& s) { return store(device, CUdevice{s.context->device()}); });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    if (flags != CU_EVENT_WAIT_DEFAULT && flags != CU_EVENT_WAIT_EXTERNAL) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return wait_event(event, stream, flags == CU_EVENT_WAIT_EXTERNAL);
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return add_work(stream, CU_GRAPH_NODE_TYPE_HOST, [function, data] {
      HostFunctionScope scope;
      function(data);
    });
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data,
                             unsigned flags) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = refuse_capture(stream); result != CUDA_SUCCESS) return result;
    stream.submit([function, handle, data] {
      HostFunctionScope scope;
      function(handle, CUDA_SUCCESS, data);
    });
    return CUDA_SUCCESS;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return with_context([&](Context& context) -> CUresult {
    return event == nullptr ? CUDA_ERROR_INVALID_VALUE : create_event(context, flags, event);
  });
}

CUresult cuEventDestroy(CUevent event) {
  return with_driver([&] { return destroy_event(event); });
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    if (flags != CU_EVENT_RECORD_DEFAULT && flags != CU_EVENT_RECORD_EXTERNAL) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return record_event(event, stream, flags == CU_EVENT_RECORD_EXTERNAL);
  });
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  return cuEventRecordWithFlags(event, handle, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventQuery(CUevent event) {
  return with_driver([&] {
    CUresult result = refuse_unsafe();
    return result == CUDA_SUCCESS ? query_event(event) : result;
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return with_driver([&] {
    CUresult result = refuse_unsafe();
    return result == CUDA_SUCCESS ? synchronize_event(event) : result;
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return with_driver([&]() -> CUresult {
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return elapsed_time(start, end, milliseconds);
  });
}

}  // extern "C"
