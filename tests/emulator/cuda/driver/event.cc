// SPDX-License-Identifier: Apache-2.0
#include "event.h"

#include <atomic>
#include <chrono>
#include <mutex>

#include "handles.h"
#include "resources.h"

namespace railyard::emulator {
namespace {

using Clock = std::chrono::steady_clock;

struct Record {
  Point point;
  /// Written by the work at `point`, read once the point is past.
  std::shared_ptr<Clock::time_point> when;
};

class Event {
 public:
  Event(const Context& context, unsigned flags) : context_(&context), flags_(flags) {}

  const Context* context() const { return context_; }
  bool timed() const { return (flags_ & CU_EVENT_DISABLE_TIMING) == 0; }
  Record record() const {
    std::lock_guard lock(mutex_);
    return record_;
  }
  void set(Record record) {
    std::lock_guard lock(mutex_);
    record_ = std::move(record);
  }

 private:
  const Context* const context_;
  const unsigned flags_;
  mutable std::mutex mutex_;
  Record record_;
};

HandleTable<CUevent, Event>& events() {
  static auto* const kTable = new HandleTable<CUevent, Event>(4);
  return *kTable;
}

/// Runs `f(event)`.
template <typename F>
CUresult with_event(CUevent handle, F f) {
  std::shared_ptr<Event> event = events().find(handle);
  return event ? f(*event) : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

CUresult create_event(const Context& context, unsigned flags, CUevent* event) {
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    return (flags & CU_EVENT_DISABLE_TIMING) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                  : CUDA_ERROR_INVALID_VALUE;
  }
  *event = events().insert(std::make_shared<Event>(context, flags));
  return CUDA_SUCCESS;
}

CUresult destroy_event(CUevent event) {
  return events().take(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult record_event(CUevent handle, StreamObject& stream) {
  return with_event(handle, [&](Event& event) -> CUresult {
    if (event.context() != stream.context.get()) return CUDA_ERROR_INVALID_HANDLE;
    auto when = std::make_shared<Clock::time_point>();
    Point point = stream.submit([when] { *when = Clock::now(); });
    event.set(Record{std::move(point), std::move(when)});
    return CUDA_SUCCESS;
  });
}

CUresult wait_event(CUevent handle, StreamObject& stream) {
  return with_event(handle, [&](Event& event) -> CUresult {
    Point point = event.record().point;
    if (!point.past()) stream.submit([] {}, {std::move(point)});
    return CUDA_SUCCESS;
  });
}

CUresult query_event(CUevent handle) {
  return with_event(handle, [](Event& event) -> CUresult {
    return event.record().point.past() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult synchronize_event(CUevent handle) {
  return with_event(handle, [](Event& event) -> CUresult {
    event.record().point.wait();
    return CUDA_SUCCESS;
  });
}

CUresult elapsed_time(CUevent start, CUevent end, float* milliseconds) {
  std::shared_ptr<Event> events_of[2] = {events().find(start), events().find(end)};
  Record records[2];
  for (int i = 0; i < 2; ++i) {
    if (!events_of[i] || !events_of[i]->timed()) return CUDA_ERROR_INVALID_HANDLE;
    records[i] = events_of[i]->record();
    if (!records[i].when) return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!records[0].point.past() || !records[1].point.past()) return CUDA_ERROR_NOT_READY;
  *milliseconds =
      std::chrono::duration<float, std::milli>(*records[1].when - *records[0].when).count();
  return CUDA_SUCCESS;
}

void release_events(const Context& context) {
  events().take_if([&](const Event& event) { return event.context() == &context; });
}

}  // namespace railyard::emulator
