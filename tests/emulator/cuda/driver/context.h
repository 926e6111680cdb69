// SPDX-License-Identifier: Apache-2.0
//
// Contexts, what is current in each thread, and the order between the streams of a context.
//
// Rules of order (those of CUDA): work of one stream is in order. Work of the legacy stream waits
// for all earlier work of the blocking streams of its context, and their later work waits for it.
// Non-blocking streams know nothing of the legacy stream. All enqueueing to the legacy stream and
// to blocking streams goes through Context::submit under one lock, which gives "earlier" a meaning.
//
// Thread-safe. What is current belongs to the calling thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <cuda.h>

#include "process.h"
#include "stream.h"

namespace railyard::emulator {

class Context;

/// What a CUstream stands for.
struct StreamObject {
  enum class Kind { kLegacy, kBlocking, kNonBlocking };
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> queue;
  Kind kind;
  int priority;
  uint64_t id;  ///< unique in the process

  /// Enqueues by the rules above. Work may wait for further points with `after`.
  Point submit(Work work, std::vector<Point> after = {});
  /// All work enqueued so far is done; for the legacy stream also that of blocking streams.
  bool idle();
  void synchronize();
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  Context(int device, unsigned flags) : device_(device), flags_(flags) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int device() const { return device_; }
  unsigned flags() const { return flags_.load(); }
  void set_flags(unsigned flags) { flags_ = flags; }
  CUcontext handle() const { return handle_; }
  void set_handle(CUcontext handle) { handle_ = handle; }
  bool destroyed() const { return destroyed_.load(); }

  /// cuCtxEnablePeerAccess: only remembered. False if it was so already.
  bool enable_peer(int device);
  bool disable_peer(int device);

  std::shared_ptr<StreamObject> create_stream(StreamObject::Kind kind, int priority);
  std::shared_ptr<StreamObject> legacy_stream();
  /// The default stream of the calling thread.
  std::shared_ptr<StreamObject> thread_stream();
  /// Waits for all work of all streams.
  void synchronize();
  /// Waits for all work, then makes the context unusable.
  void destroy();

 private:
  friend struct StreamObject;
  struct Member {
    std::weak_ptr<StreamObject> object;
    std::shared_ptr<Stream> queue;
    StreamObject::Kind kind;
  };
  void drop_finished();
  std::vector<Point> pending_of_blocking();
  std::vector<Point> pending_of_legacy();

  const int device_;
  std::atomic<unsigned> flags_;
  CUcontext handle_ = nullptr;
  std::atomic<bool> destroyed_{false};
  std::mutex order_;             ///< guards what follows and the order of enqueueing
  std::vector<Member> members_;  ///< all streams that live or have work
  std::shared_ptr<StreamObject> legacy_;
  std::set<int> peers_;
};

/// The context of the calling thread in `context`, or CUDA_ERROR_INVALID_CONTEXT or
/// CUDA_ERROR_CONTEXT_IS_DESTROYED.
CUresult current_context(std::shared_ptr<Context>* context);
/// Handle of what is current in the calling thread; null: nothing.
CUcontext current_handle();
/// REQUIRES: usable().
CUresult set_current(CUcontext handle);
CUresult push_current(CUcontext handle);
CUresult pop_current(CUcontext* handle);

std::shared_ptr<Context> find_context(CUcontext handle);
/// A new context, made current by pushing it.
CUcontext create_context(int device, unsigned flags);
CUresult destroy_context(CUcontext handle);

CUresult retain_primary(int device, CUcontext* handle);
CUresult release_primary(int device);
CUresult reset_primary(int device);
CUresult set_primary_flags(int device, unsigned flags);
/// Waits for all work of the primary context, if there is one.
void synchronize_device(int device);
void primary_state(int device, unsigned* flags, bool* active);

/// Runs `f()` if the driver may be used.
template <typename F>
CUresult with_driver(F f) {
  CUresult result = usable();
  return result == CUDA_SUCCESS ? f() : result;
}

/// Runs `f(context)` with the current context.
template <typename F>
CUresult with_context(F f) {
  return with_driver([&]() -> CUresult {
    std::shared_ptr<Context> context;
    CUresult result = current_context(&context);
    return result == CUDA_SUCCESS ? f(*context) : result;
  });
}

/// The stream that `handle` names in the current context, default streams included.
CUresult find_stream(CUstream handle, std::shared_ptr<StreamObject>* stream);

/// Runs `f(stream)` with what `handle` names.
template <typename F>
CUresult with_stream(CUstream handle, F f) {
  return with_driver([&]() -> CUresult {
    std::shared_ptr<StreamObject> stream;
    CUresult result = find_stream(handle, &stream);
    return result == CUDA_SUCCESS ? f(*stream) : result;
  });
}

CUstream create_stream(Context& context, StreamObject::Kind kind, int priority);
CUresult destroy_stream(CUstream handle);

}  // namespace railyard::emulator
