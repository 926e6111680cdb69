// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "thread.h"

namespace railyard::emulator {

class Capture {
 public:
  Capture(uint64_t i, const StreamObject& stream, CUstreamCaptureMode m)
      : id(i), origin(&stream), mode(m), handle(insert_graph(graph)) {}

  const uint64_t id;
  const StreamObject* const origin;
  const CUstreamCaptureMode mode;
  const std::thread::id thread = std::this_thread::get_id();
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();  ///< null: over
  const CUgraph handle;
  bool spoilt = false;
};

namespace {

/// A stream in a capture.
struct Seat {
  std::shared_ptr<Capture> capture;
  std::vector<NodePtr> frontier;  ///< what its next node depends on
  // What capture_info() points to.
  std::vector<CUgraphNode> handles = {};
  std::vector<CUgraphEdgeData> edges = {};
};

struct All {
  std::mutex mutex;  ///< guards all below and all captures
  std::map<const StreamObject*, Seat> seats;
  uint64_t last_id = 0;
  std::atomic<size_t> count{0};  ///< of seats, to skip the lock
};

All& all() {
  static auto* const kAll = new All;
  return *kAll;
}

void count_seats() { all().count = all().seats.size(); }

/// The stream's seat, or null. REQUIRES: the lock.
Seat* seat_of(const StreamObject& stream) {
  auto found = all().seats.find(&stream);
  return found == all().seats.end() ? nullptr : &found->second;
}

/// Spoils captures of blocking streams in the context; true if there are any.
bool spoil_blocking(const Context& context) {
  bool any = false;
  for (auto& [stream, seat] : all().seats) {
    if (stream->context.get() != &context || stream->kind != StreamObject::Kind::kBlocking) {
      continue;
    }
    seat.capture->spoilt = any = true;
  }
  return any;
}

/// CUDA_SUCCESS if work may be added to the stream; `*seat` is null if it is not captured.
CUresult enter(const StreamObject& stream, Seat** seat) {
  *seat = seat_of(stream);
  if (*seat != nullptr) {
    return (*seat)->capture->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  }
  const bool implicit =
      stream.kind == StreamObject::Kind::kLegacy && spoil_blocking(*stream.context);
  return implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

void add_node(Seat& seat, Node node) {
  node.after = std::move(seat.frontier);
  seat.frontier = {seat.capture->graph->add(std::move(node))};
}

void add_dependency(std::vector<NodePtr>* frontier, const NodePtr& node) {
  if (std::find(frontier->begin(), frontier->end(), node) == frontier->end()) {
    frontier->push_back(node);
  }
}

/// All that `frontier` depends on, itself included.
std::set<const Node*> ancestors(const std::vector<NodePtr>& frontier) {
  std::set<const Node*> found;
  std::vector<const Node*> open;
  for (const NodePtr& node : frontier) open.push_back(node.get());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!found.insert(node).second) continue;
    for (const NodePtr& other : node->after) open.push_back(other.get());
  }
  return found;
}

/// Whether the origin depends on all that the other streams of the capture have done.
bool joined(const Seat& origin) {
  const std::set<const Node*> known = ancestors(origin.frontier);
  for (const auto& [stream, seat] : all().seats) {
    if (seat.capture != origin.capture) continue;
    for (const NodePtr& node : seat.frontier) {
      if (known.count(node.get()) == 0) return false;
    }
  }
  return true;
}

void close(const std::shared_ptr<Capture>& capture) {
  capture->graph = nullptr;
  std::erase_if(all().seats, [&](const auto& entry) { return entry.second.capture == capture; });
  count_seats();
}

}  // namespace

CUresult add_work(StreamObject& stream, CUgraphNodeType type, Work work) {
  if (all().count > 0) {
    std::lock_guard lock(all().mutex);
    Seat* seat = nullptr;
    if (CUresult result = enter(stream, &seat); result != CUDA_SUCCESS) return result;
    if (seat != nullptr) {
      add_node(*seat, Node{type, {}, std::move(work), nullptr});
      return CUDA_SUCCESS;
    }
  }
  stream.submit(std::move(work));
  return CUDA_SUCCESS;
}

CUresult add_event_node(StreamObject& stream, CUgraphNodeType type, std::shared_ptr<Event> event) {
  std::lock_guard lock(all().mutex);
  Seat* seat = nullptr;
  if (CUresult result = enter(stream, &seat); result != CUDA_SUCCESS) return result;
  if (seat == nullptr) return CUDA_ERROR_INVALID_VALUE;
  add_node(*seat, Node{type, {}, nullptr, std::move(event)});
  return CUDA_SUCCESS;
}

CUresult refuse_capture(const StreamObject& stream) {
  if (all().count == 0) return CUDA_SUCCESS;
  std::lock_guard lock(all().mutex);
  Seat* seat = nullptr;
  CUresult result = enter(stream, &seat);
  if (result != CUDA_SUCCESS || seat == nullptr) return result;
  seat->capture->spoilt = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult refuse_capture(const Context& context) {
  if (all().count == 0) return CUDA_SUCCESS;
  std::lock_guard lock(all().mutex);
  CUresult result = CUDA_SUCCESS;
  for (auto& [stream, seat] : all().seats) {
    if (stream->context.get() != &context) continue;
    seat.capture->spoilt = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult refuse_unsafe() {
  if (all().count == 0) return CUDA_SUCCESS;
  const CUstreamCaptureMode mode = this_thread().capture_mode;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::lock_guard lock(all().mutex);
  CUresult result = CUDA_SUCCESS;
  for (auto& [stream, seat] : all().seats) {
    Capture& capture = *seat.capture;
    const bool forbidden = capture.thread == std::this_thread::get_id()
                               ? capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
                               : capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                     mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbidden) continue;
    capture.spoilt = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

bool captures(const StreamObject& stream) {
  if (all().count == 0) return false;
  std::lock_guard lock(all().mutex);
  return seat_of(stream) != nullptr;
}

CUresult begin_capture(const StreamObject& stream, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream.kind == StreamObject::Kind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::lock_guard lock(all().mutex);
  if (seat_of(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  all().seats[&stream] = Seat{std::make_shared<Capture>(++all().last_id, stream, mode), {}};
  count_seats();
  return CUDA_SUCCESS;
}

CUresult end_capture(const StreamObject& stream, CUgraph* graph) {
  *graph = nullptr;
  std::lock_guard lock(all().mutex);
  Seat* seat = seat_of(stream);
  if (seat == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  std::shared_ptr<Capture> capture = seat->capture;
  if (capture->origin != &stream) {
    capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = capture->spoilt  ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : !joined(*seat) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                     : CUDA_SUCCESS;
  close(capture);
  if (result == CUDA_SUCCESS) {
    *graph = capture->handle;
  } else {
    destroy_graph(capture->handle);
  }
  return result;
}

CUresult capture_info(const StreamObject& stream, CaptureInfo* info) {
  *info = {};
  if (all().count == 0) return CUDA_SUCCESS;
  std::lock_guard lock(all().mutex);
  Seat* seat = seat_of(stream);
  if (seat == nullptr) {
    if (stream.kind != StreamObject::Kind::kLegacy) return CUDA_SUCCESS;
    return spoil_blocking(*stream.context) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
  }
  if (seat->capture->spoilt) {
    info->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  }
  seat->handles.clear();
  for (const NodePtr& node : seat->frontier) seat->handles.push_back(node->handle);
  seat->edges.assign(seat->handles.size(), {});
  *info = {CU_STREAM_CAPTURE_STATUS_ACTIVE,
           seat->capture->id,
           seat->capture->handle,
           seat->handles.data(),
           seat->edges.data(),
           seat->handles.size()};
  return CUDA_SUCCESS;
}

CUresult update_dependencies(const StreamObject& stream, const CUgraphNode* nodes, size_t count,
                             unsigned flags) {
  std::vector<NodePtr> frontier;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || !find_nodes(nodes, count, &frontier)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(all().mutex);
  Seat* seat = nullptr;
  if (CUresult result = enter(stream, &seat); result != CUDA_SUCCESS) return result;
  if (seat == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  for (const NodePtr& node : frontier) {
    if (!seat->capture->graph->contains(node)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) seat->frontier.clear();
  for (const NodePtr& node : frontier) add_dependency(&seat->frontier, node);
  return CUDA_SUCCESS;
}

void forget_captures_of(const StreamObject& stream) {
  if (all().count == 0) return;
  std::lock_guard lock(all().mutex);
  Seat* seat = seat_of(stream);
  if (seat == nullptr) return;
  const std::shared_ptr<Capture> capture = seat->capture;
  capture->spoilt = true;
  if (capture->origin != &stream) {
    all().seats.erase(&stream);
    count_seats();
    return;
  }
  close(capture);
  destroy_graph(capture->handle);
}

CUresult captured_point(const StreamObject& stream, std::optional<CapturedPoint>* point) {
  point->reset();
  if (all().count == 0) return CUDA_SUCCESS;
  std::lock_guard lock(all().mutex);
  Seat* seat = nullptr;
  CUresult result = enter(stream, &seat);
  if (result == CUDA_SUCCESS && seat != nullptr) {
    *point = {seat->capture, {seat->frontier.begin(), seat->frontier.end()}};
  }
  return result;
}

CUresult join_capture(const StreamObject& stream, const CapturedPoint& point) {
  std::lock_guard lock(all().mutex);
  const std::shared_ptr<Capture>& capture = point.capture;
  if (!capture->graph) return CUDA_ERROR_CAPTURED_EVENT;
  if (capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Seat* seat = nullptr;
  if (CUresult result = enter(stream, &seat); result != CUDA_SUCCESS) return result;
  if (seat == nullptr && stream.kind == StreamObject::Kind::kLegacy) {
    capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (seat == nullptr) {
    seat = &(all().seats[&stream] = Seat{capture, {}});
    count_seats();
  } else if (seat->capture != capture) {
    seat->capture->spoilt = capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  for (const auto& node : point.nodes) add_dependency(&seat->frontier, node.lock());
  return CUDA_SUCCESS;
}

CUresult refuse_captured(const CapturedPoint& point) {
  std::lock_guard lock(all().mutex);
  if (point.capture->graph) point.capture->spoilt = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

}  // namespace railyard::emulator
