// SPDX-License-Identifier: Apache-2.0
//
// Which contexts and streams there are, and which context is current in a thread.
#include <algorithm>
#include <array>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "resources.h"
#include "settings.h"
#include "thread.h"

namespace railyard::emulator {
namespace {

HandleTable<CUcontext, Context>& contexts() {
  static auto* const kTable = new HandleTable<CUcontext, Context>(1);
  return *kTable;
}

HandleTable<CUstream, StreamObject>& streams() {
  static auto* const kTable = new HandleTable<CUstream, StreamObject>(2);
  return *kTable;
}

struct Primary {
  std::mutex mutex;
  std::shared_ptr<Context> context;  ///< null: inactive
  unsigned references = 0;
  unsigned flags = 0;
};

/// REQUIRES: a device of settings().
Primary& primary(int device) {
  static auto* const kPrimaries = new std::vector<Primary>(settings().devices.size());
  return (*kPrimaries)[static_cast<size_t>(device)];
}

std::shared_ptr<Context> make_context(int device, unsigned flags) {
  auto context = std::make_shared<Context>(device, flags);
  context->set_handle(contexts().insert(context));
  return context;
}

void retire(const std::shared_ptr<Context>& context) {
  context->destroy();
  contexts().take(context->handle());
  for (const auto& stream :
       streams().take_if([&](const StreamObject& s) { return s.context == context; })) {
    forget_captures_of(*stream);
    stream->queue->close();
  }
  release_resources(*context);
}

}  // namespace

CUresult current_context(std::shared_ptr<Context>* context) {
  auto& stack = this_thread().contexts;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.back()->destroyed()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *context = stack.back();
  return CUDA_SUCCESS;
}

CUcontext current_handle() {
  auto& stack = this_thread().contexts;
  return stack.empty() ? nullptr : stack.back()->handle();
}

CUresult set_current(CUcontext handle) {
  auto& stack = this_thread().contexts;
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  if (!stack.empty() && stack.back()->handle() == handle && !stack.back()->destroyed()) {
    return CUDA_SUCCESS;
  }
  auto context = find_context(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop_back();
  stack.push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult push_current(CUcontext handle) {
  auto context = find_context(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  this_thread().contexts.push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult pop_current(CUcontext* handle) {
  auto& stack = this_thread().contexts;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = stack.back()->handle();
  stack.pop_back();
  return CUDA_SUCCESS;
}

std::shared_ptr<Context> find_context(CUcontext handle) { return contexts().find(handle); }

CUcontext create_context(int device, unsigned flags) {
  auto context = make_context(device, flags);
  CUcontext handle = context->handle();
  this_thread().contexts.push_back(std::move(context));
  return handle;
}

CUresult destroy_context(CUcontext handle) {
  auto context = find_context(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = this_thread().contexts;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  retire(context);
  return CUDA_SUCCESS;
}

CUresult retain_primary(int device, CUcontext* handle) {
  Primary& entry = primary(device);
  std::lock_guard lock(entry.mutex);
  if (!entry.context) entry.context = make_context(device, entry.flags);
  ++entry.references;
  *handle = entry.context->handle();
  return CUDA_SUCCESS;
}

CUresult release_primary(int device) {
  Primary& entry = primary(device);
  std::lock_guard lock(entry.mutex);
  if (entry.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--entry.references > 0) return CUDA_SUCCESS;
  retire(entry.context);
  entry.context = nullptr;
  return CUDA_SUCCESS;
}

CUresult reset_primary(int device) {
  Primary& entry = primary(device);
  std::lock_guard lock(entry.mutex);
  if (entry.context) retire(entry.context);
  entry.context = nullptr;
  entry.references = 0;
  return CUDA_SUCCESS;
}

CUresult set_primary_flags(int device, unsigned flags) {
  Primary& entry = primary(device);
  std::lock_guard lock(entry.mutex);
  entry.flags = flags;
  if (entry.context) entry.context->set_flags(flags);
  return CUDA_SUCCESS;
}

void synchronize_device(int device) {
  std::shared_ptr<Context> context;
  {
    Primary& entry = primary(device);
    std::lock_guard lock(entry.mutex);
    context = entry.context;
  }
  if (context) context->synchronize();
}

void primary_state(int device, unsigned* flags, bool* active) {
  Primary& entry = primary(device);
  std::lock_guard lock(entry.mutex);
  *flags = entry.flags;
  *active = entry.context != nullptr;
}

CUresult find_stream(CUstream handle, std::shared_ptr<StreamObject>* stream) {
  std::shared_ptr<Context> context;
  if (CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    *stream = context->legacy_stream();
  } else if (handle == CU_STREAM_PER_THREAD) {
    *stream = context->thread_stream();
  } else {
    *stream = streams().find(handle);
  }
  return *stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUstream create_stream(Context& context, StreamObject::Kind kind, int priority) {
  return streams().insert(context.create_stream(kind, priority));
}

CUresult destroy_stream(CUstream handle) {
  auto stream = streams().take(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  forget_captures_of(*stream);
  stream->queue->close();
  return CUDA_SUCCESS;
}

}  // namespace railyard::emulator
