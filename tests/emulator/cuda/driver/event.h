// SPDX-License-Identifier: Apache-2.0
//
// Events: a point of a stream that can be recorded anew, and when it was reached. One recorded in a
// stream that captures stands for a point of the capture instead. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <cuda.h>

#include "context.h"

namespace railyard::emulator {

class Event;

CUresult create_event(const Context& context, unsigned flags, CUevent* event);
CUresult destroy_event(CUevent event);
/// `external`: in a capture, a node of the graph records it (else the capture remembers where).
CUresult record_event(CUevent event, StreamObject& stream, bool external);
/// Work that comes later in `stream` waits for what was last recorded; for nothing if never.
/// A point of a capture takes the stream into the capture. `external`: in a capture, a node of the
/// graph waits.
CUresult wait_event(CUevent event, StreamObject& stream, bool external);
/// CUDA_SUCCESS or CUDA_ERROR_NOT_READY.
CUresult query_event(CUevent event);
CUresult synchronize_event(CUevent event);
CUresult elapsed_time(CUevent start, CUevent end, float* milliseconds);

/// What a wait for the event would wait for now.
Point last_record(const Event& event);
/// Records the work that `enqueue` enqueues.
Point record_at(Event& event, const std::function<Point(Work)>& enqueue);

}  // namespace railyard::emulator
