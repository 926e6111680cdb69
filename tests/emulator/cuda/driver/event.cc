// SPDX-License-Identifier: Apache-2.0
#include "event.h"

#include <atomic>
#include <chrono>
#include <mutex>

#include "capture.h"
#include "handles.h"
#include "resources.h"

namespace railyard::emulator {
namespace {

using Clock = std::chrono::steady_clock;

struct Record {
  Point point;
  /// Written by the work at `point`, read once the point is past.
  std::shared_ptr<Clock::time_point> when;
  /// Set: recorded in a capture, and the point is none.
  std::optional<CapturedPoint> captured = {};
};

}  // namespace

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

namespace {

HandleTable<CUevent, Event>& events() {
  static auto* const kTable = new HandleTable<CUevent, Event>(4);
  return *kTable;
}

/// Runs `f(event)`.
template <typename F>
CUresult with_event(CUevent handle, F f) {
  std::shared_ptr<Event> event = events().find(handle);
  return event ? f(event) : CUDA_ERROR_INVALID_HANDLE;
}

/// Runs `f(point)` with what was recorded last, outside of captures.
template <typename F>
CUresult with_record(CUevent handle, F f) {
  return with_event(handle, [&](const std::shared_ptr<Event>& event) -> CUresult {
    Record record = event->record();
    return record.captured ? refuse_captured(*record.captured) : f(record.point);
  });
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

CUresult record_event(CUevent handle, StreamObject& stream, bool external) {
  return with_event(handle, [&](const std::shared_ptr<Event>& event) -> CUresult {
    if (event->context() != stream.context.get()) return CUDA_ERROR_INVALID_HANDLE;
    if (external) return add_event_node(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    std::optional<CapturedPoint> captured;
    CUresult result = captured_point(stream, &captured);
    if (result != CUDA_SUCCESS) return result;
    if (captured) {
      event->set(Record{{}, nullptr, std::move(captured)});
    } else {
      record_at(*event, [&](Work work) { return stream.submit(std::move(work)); });
    }
    return CUDA_SUCCESS;
  });
}

CUresult wait_event(CUevent handle, StreamObject& stream, bool external) {
  return with_event(handle, [&](const std::shared_ptr<Event>& event) -> CUresult {
    if (external) return add_event_node(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    Record record = event->record();
    if (record.captured) return join_capture(stream, *record.captured);
    // Never recorded: nothing to wait for, in a capture either.
    if (!record.point.stream) return CUDA_SUCCESS;
    if (captures(stream)) {
      refuse_capture(stream);
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (CUresult result = refuse_capture(stream); result != CUDA_SUCCESS) return result;
    if (!record.point.past()) stream.submit([] {}, {std::move(record.point)});
    return CUDA_SUCCESS;
  });
}

CUresult query_event(CUevent handle) {
  return with_record(handle, [](const Point& point) -> CUresult {
    return point.past() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult synchronize_event(CUevent handle) {
  return with_record(handle, [](const Point& point) -> CUresult {
    point.wait();
    return CUDA_SUCCESS;
  });
}

Point last_record(const Event& event) { return event.record().point; }

Point record_at(Event& event, const std::function<Point(Work)>& enqueue) {
  auto when = std::make_shared<Clock::time_point>();
  Point point = enqueue([when] { *when = Clock::now(); });
  event.set(Record{point, std::move(when)});
  return point;
}

CUresult elapsed_time(CUevent start, CUevent end, float* milliseconds) {
  std::shared_ptr<Event> events_of[2] = {events().find(start), events().find(end)};
  Record records[2];
  for (int i = 0; i < 2; ++i) {
    if (!events_of[i] || !events_of[i]->timed()) return CUDA_ERROR_INVALID_HANDLE;
    records[i] = events_of[i]->record();
    if (records[i].captured) return refuse_captured(*records[i].captured);
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
