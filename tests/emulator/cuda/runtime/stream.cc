// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: streams, events, host functions.
#include <memory>

#include "runtime.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

struct Callback {
  cudaStreamCallback_t function;
  void* data;
};

void call_back(CUstream stream, CUresult status, void* data) {
  std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  callback->function(stream, static_cast<cudaError_t>(status), callback->data);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return with_context([&] { return cuStreamCreateWithPriority(stream, flags, priority); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return with_context([&] { return cuStreamDestroy(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return with_context([&] { return cuStreamSynchronize(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return with_context([&] { return cuStreamQuery(stream); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return with_context([&] { return cuStreamGetPriority(stream, priority); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return with_context([&] { return cuStreamGetFlags(stream, flags); });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return with_context([&] { return cuStreamGetId(stream, id); });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return with_context([&] { return cuStreamGetDevice(stream, device); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return with_context([&] { return cuStreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return with_context([&] { return cuLaunchHostFunc(stream, function, data); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned flags) {
  return with_context([&]() -> CUresult {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto callback = std::make_unique<Callback>(Callback{function, data});
    CUresult code = cuStreamAddCallback(stream, call_back, callback.get(), flags);
    if (code == CUDA_SUCCESS) static_cast<void>(callback.release());
    return code;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return with_context([&] { return cuEventCreate(event, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return with_context([&] { return cuEventDestroy(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return with_context([&] { return cuEventRecord(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return with_context([&] { return cuEventRecordWithFlags(event, stream, flags); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return with_context([&] { return cuEventQuery(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return with_context([&] { return cuEventSynchronize(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return with_context([&] { return cuEventElapsedTime(milliseconds, start, end); });
}

}  // extern "C"
