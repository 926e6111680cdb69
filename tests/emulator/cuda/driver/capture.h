// SPDX-License-Identifier: Apache-2.0
//
// Stream capture: what is asked of a stream becomes nodes of a graph instead of being done.
//
// A capture begins on one stream, its origin. Others join it when they wait for an event that was
// recorded in it, and must be joined again by the origin before it ends. A call that is not allowed
// meanwhile fails and spoils the capture, which its end then reports.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <cuda.h>

#include "context.h"
#include "graph.h"

namespace railyard::emulator {

class Capture;

/// Does `work` in stream order, or makes it a node of this type if the stream captures.
CUresult add_work(StreamObject& stream, CUgraphNodeType type, Work work);
/// Makes an event node if the stream captures; an external event is none outside of captures.
CUresult add_event_node(StreamObject& stream, CUgraphNodeType type, std::shared_ptr<Event> event);

/// For what cannot be captured. CUDA_SUCCESS if the stream does not capture nor is the legacy
/// stream beside a capture of a blocking one.
CUresult refuse_capture(const StreamObject& stream);
/// For what waits for all of a context.
CUresult refuse_capture(const Context& context);
/// For calls that may need other streams to make progress: CUDA_SUCCESS unless a capture, by its
/// mode and that of the calling thread, forbids them to this thread.
CUresult refuse_unsafe();
bool captures(const StreamObject& stream);

CUresult begin_capture(const StreamObject& stream, CUstreamCaptureMode mode);
CUresult end_capture(const StreamObject& stream, CUgraph* graph);

struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  /// What the next node depends on. Valid until the next call on the stream.
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
};
CUresult capture_info(const StreamObject& stream, CaptureInfo* info);
/// Sets what the next node depends on, or adds to it.
CUresult update_dependencies(const StreamObject& stream, const CUgraphNode* nodes, size_t count,
                             unsigned flags);
/// The stream ends.
void forget_captures_of(const StreamObject& stream);

/// What an event stands for that was recorded in a capture. Keeps no graph alive.
struct CapturedPoint {
  std::shared_ptr<Capture> capture;
  std::vector<std::weak_ptr<Node>> nodes;
};
/// Where the capture of the stream is; nothing if it does not capture.
CUresult captured_point(const StreamObject& stream, std::optional<CapturedPoint>* point);
/// What comes later in the stream depends on the point, too.
CUresult join_capture(const StreamObject& stream, const CapturedPoint& point);
/// The program asked whether a point of a capture was reached.
CUresult refuse_captured(const CapturedPoint& point);

/// Runs `f(context)` unless a capture forbids unsafe calls.
template <typename F>
CUresult with_context_unless_captured(F f) {
  return with_context([&](Context& context) -> CUresult {
    CUresult result = refuse_unsafe();
    return result == CUDA_SUCCESS ? f(context) : result;
  });
}

}  // namespace railyard::emulator
