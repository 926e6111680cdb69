// SPDX-License-Identifier: Apache-2.0
//
// Launching and ending; creation is in creation.cc.
#include "communicator.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "result.h"

namespace railyard::emulator {

/// What a stream holds of a group on one communicator. Captured work may run many times.
struct Communicator::Work {
  std::shared_ptr<Communicator> communicator;
  std::vector<Task> collectives;
  std::vector<Task> points;
  bool captured = false;
};

namespace {

struct Capture {
  CUgraph graph = nullptr;  ///< null: the stream is not captured
  cuuint64_t id = 0;        ///< never reused; 0: not captured
};

ncclResult_t capture_of(CUstream stream, Capture* capture) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ncclResult_t result = check(::cuStreamGetCaptureInfo(stream, &status, &capture->id,
                                                       &capture->graph, nullptr, nullptr, nullptr),
                              "cuStreamGetCaptureInfo");
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) *capture = {};
  return result;
}

}  // namespace

Communicator::Communicator() : cancel_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ncclResult_t Communicator::state() const {
  ncclResult_t state = state_.load();
  return state != ncclSuccess ? state : failure_.load();
}

ncclResult_t Communicator::ask_state(ncclResult_t* state) const {
  return ncclCommGetAsyncError(handle_, state);
}

ncclResult_t Communicator::check_ready() const {
  ncclResult_t now = ncclSuccess;
  ncclResult_t asked = ask_state(&now);
  if (asked != ncclSuccess) return asked;
  if (now == ncclSuccess) return now;
  if (now != ncclInProgress) return fail(now, "rank %d: the communicator has failed", rank_);
  return fail(ncclInvalidArgument,
              "rank %d: an earlier call is still in progress; poll ncclCommGetAsyncError", rank_);
}

ncclResult_t Communicator::check_usable() const {
  if (revoked_) return fail(ncclInvalidUsage, "rank %d: the communicator was revoked", rank_);
  ncclResult_t ready = check_ready();
  if (ready != ncclSuccess) return ready;
  if (suspended_) return fail(ncclInvalidUsage, "rank %d: the communicator is suspended", rank_);
  if (!finalized_) return ncclSuccess;
  return fail(ncclInvalidUsage, "rank %d: the communicator was finalized", rank_);
}

ncclResult_t Communicator::add_operation(const Operation& operation, ncclDataType_t type,
                                         ncclRedOp_t* op) {
  operations_[next_operation_] = NamedOperation{operation, type};
  *op = static_cast<ncclRedOp_t>(next_operation_++);
  return ncclSuccess;
}

ncclResult_t Communicator::remove_operation(ncclRedOp_t op) {
  if (operations_.erase(static_cast<int>(op)) == 1) return ncclSuccess;
  return fail(ncclInvalidArgument, "ncclRedOpDestroy: operation %d was not created on rank %d",
              static_cast<int>(op), rank_);
}

ncclResult_t Communicator::find_operation(ncclRedOp_t op, ncclDataType_t type,
                                          Operation* operation) const {
  auto number = static_cast<int>(op);
  if (number >= 0 && number < ncclNumOps) {
    operation->base = op;
    return ncclSuccess;
  }
  auto found = operations_.find(number);
  if (found == operations_.end()) {
    return fail(ncclInvalidArgument, "rank %d: %d is no reduction operation", rank_, number);
  }
  if (found->second.type != type) {
    return fail(ncclInvalidArgument, "rank %d: operation %d was created for another data type",
                rank_, number);
  }
  *operation = found->second.operation;
  return ncclSuccess;
}

ncclResult_t Communicator::add_stream(CUstream stream, Batch* batch) const {
  ContextScope scope(device_.context());
  Capture capture;
  ncclResult_t result = capture_of(stream, &capture);
  if (result != ncclSuccess) return result;
  if (!batch->streams.empty() && capture.id != batch->capture) {
    return fail(ncclInvalidUsage,
                "rank %d: the streams of a group must all be captured by one graph, or none",
                rank_);
  }
  batch->capture = capture.id;
  batch->streams.push_back(stream);
  return ncclSuccess;
}

ncclResult_t Communicator::ask_tuner(const Batch& batch) const {
  for (const Task& task : batch.collectives) {
    ncclResult_t result = tuner_.ask(task);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t Communicator::check_batch(const Batch& batch) const {
  ncclResult_t result = ask_tuner(batch);
  return result == ncclSuccess ? check_self(batch.points, rank_) : result;
}

/// The last stream is launched on: it waits for the others and for the previous work. What a graph
/// holds waits, each time it runs, for what was launched before.
ncclResult_t Communicator::order_before(const Batch& batch, uint64_t capture) {
  CUstream stream = batch.streams.back();
  CUresult result = CUDA_SUCCESS;
  for (CUevent* event : {&last_, &fork_, &in_capture_}) {
    if (*event == nullptr && result == CUDA_SUCCESS) {
      result = ::cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    }
  }
  for (size_t i = 0; i + 1 < batch.streams.size() && result == CUDA_SUCCESS; ++i) {
    result = ::cuEventRecord(fork_, batch.streams[i]);
    if (result == CUDA_SUCCESS) result = ::cuStreamWaitEvent(stream, fork_, 0);
  }
  // A handle of a thread's default stream names another stream in each thread; and who has captured
  // may have launched graphs since.
  bool same = stream == last_stream_ && stream != CU_STREAM_PER_THREAD && capture_ == 0;
  CUevent previous = capture != 0 && capture == capture_ ? in_capture_ : last_;
  const unsigned flags = capture != 0 && capture != capture_ ? CU_EVENT_WAIT_EXTERNAL : 0;
  const bool needed = capture != 0 || (launched_ && !same);
  if (result == CUDA_SUCCESS && needed) result = ::cuStreamWaitEvent(stream, previous, flags);
  return check(result, "ordering the streams of a group");
}

ncclResult_t Communicator::order_after(const Batch& batch, uint64_t capture) {
  CUstream stream = batch.streams.back();
  CUevent event = capture != 0 ? in_capture_ : last_;
  CUresult result = ::cuEventRecord(event, stream);
  for (size_t i = 0; i + 1 < batch.streams.size() && result == CUDA_SUCCESS; ++i) {
    result = ::cuStreamWaitEvent(batch.streams[i], event, 0);
  }
  if (capture != 0 && result == CUDA_SUCCESS) {
    result = ::cuEventRecordWithFlags(last_, stream, CU_EVENT_RECORD_EXTERNAL);
  }
  capture_ = capture != 0 ? capture : capture_;
  last_stream_ = stream;
  launched_ = true;
  return check(result, "ordering the streams of a group");
}

ncclResult_t Communicator::launch(Batch batch) {
  ContextScope scope(device_.context());
  CUstream stream = batch.streams.back();
  Capture capture;
  ncclResult_t result = capture_of(stream, &capture);
  const bool capturing = capture.id != 0;
  if (result == ncclSuccess) result = order_before(batch, capture.id);
  if (result != ncclSuccess) return result;
  auto work = std::make_unique<Work>();
  work->communicator = shared_from_this();
  work->collectives = std::move(batch.collectives);
  work->points = std::move(batch.points);
  work->captured = capturing;
  if (!capturing) {
    std::lock_guard lock(mutex_);
    ++outstanding_;
  }
  result = check(::cuLaunchHostFunc(stream, run_in_stream, work.get()), "cuLaunchHostFunc");
  if (result != ncclSuccess) {
    if (!capturing) finish_work();
    return result;
  }
  Work* launched = work.release();  // run_in_stream owns it now, or the graph
  if (capturing) result = hand_to_graph(capture.graph, launched);
  return result == ncclSuccess ? order_after(batch, capture.id) : result;
}

/// The work ends with the last graph that holds it; until then the communicator cannot be
/// destroyed.
ncclResult_t Communicator::hand_to_graph(CUgraph graph, Work* work) {
  {
    std::lock_guard lock(mutex_);
    ++graphs_;
  }
  CUuserObject object = nullptr;
  CUresult result =
      ::cuUserObjectCreate(&object, work, drop_captured, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  if (result == CUDA_SUCCESS) {
    result = ::cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  }
  return check(result, "giving work to a graph");
}

void Communicator::drop_captured(void* argument) {
  auto* work = static_cast<Work*>(argument);
  std::shared_ptr<Communicator> self = std::move(work->communicator);
  delete work;
  std::lock_guard lock(self->mutex_);
  --self->graphs_;
  self->changed_.notify_all();
}

void Communicator::run_in_stream(void* argument) {
  auto* work = static_cast<Work*>(argument);
  std::shared_ptr<Communicator> self = work->communicator;
  if (self->enter()) {
    std::lock_guard kernel(self->kernel_);
    if (self->failure_.load() == ncclSuccess) {
      ncclResult_t result = self->execute(*work);
      if (result != ncclSuccess && !self->aborted_) self->give_up(result);
    }
    self->leave();
  }
  if (work->captured) return;
  delete work;
  self->finish_work();
}

/// Collectives come first, whatever the order of the calls.
ncclResult_t Communicator::execute(const Work& work) {
  for (const Task& task : work.collectives) {
    ncclResult_t result = run_collective(task, fabric_, aborted_);
    if (result != ncclSuccess) return result;
  }
  if (work.points.empty()) return ncclSuccess;
  return run_point_to_point(work.points, fabric_, aborted_, &traffic_);
}

void Communicator::finish_work() {
  std::lock_guard lock(mutex_);
  --outstanding_;
  changed_.notify_all();
}

bool Communicator::enter() {
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  ++inside_;
  return true;
}

void Communicator::leave() {
  std::lock_guard lock(mutex_);
  --inside_;
  changed_.notify_all();
}

void Communicator::give_up(ncclResult_t reason) {
  ncclResult_t none = ncclSuccess;
  failure_.compare_exchange_strong(none, reason);
}

void Communicator::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return outstanding_ == 0 && inside_ == 0; });
}

void Communicator::wait_for_graphs() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return graphs_ == 0; });
}

ncclResult_t Communicator::begin_finalize() {
  if (finalized_ || revoked_) {
    return fail(ncclInvalidArgument, "rank %d: the communicator was finalized or revoked before",
                rank_);
  }
  finalized_ = true;
  return ncclSuccess;
}

ncclResult_t Communicator::end_finalize() {
  wait_until_idle();
  wait_for_graphs();
  return ncclSuccess;
}

ncclResult_t Communicator::destroy() {
  wait_until_idle();
  if (!revoked_) wait_for_graphs();
  if (failure_.load() == ncclSuccess && joined_ && !revoked_) fabric_.drain();
  close();
  return ncclSuccess;
}

ncclResult_t Communicator::begin_revoke() {
  if (finalized_ || revoked_) {
    return fail(ncclInvalidArgument, "rank %d: the communicator was finalized or revoked before",
                rank_);
  }
  revoked_ = true;
  aborted_ = true;
  if (joined_) fabric_.bell().ring();
  return ncclSuccess;
}

ncclResult_t Communicator::end_revoke() {
  wait_until_idle();
  return ncclSuccess;
}

ncclResult_t Communicator::suspend() {
  if (suspended_) return fail(ncclInvalidUsage, "rank %d: it is suspended already", rank_);
  wait_until_idle();
  suspended_ = true;
  return ncclSuccess;
}

ncclResult_t Communicator::resume() {
  if (!suspended_) return fail(ncclInvalidUsage, "rank %d: it is not suspended", rank_);
  suspended_ = false;
  return ncclSuccess;
}

void Communicator::interrupt() {
  if (revoked_) return;
  aborted_ = true;
  if (joined_) fabric_.bell().ring();
  wait_until_idle();
  aborted_ = false;
}

ncclResult_t Communicator::abort() {
  aborted_ = true;
  ended_ = true;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(cancel_.get(), &one, sizeof one);
  {
    std::unique_lock lock(mutex_);
    closed_ = true;
    if (joined_) fabric_.bell().ring();
    changed_.wait(lock, [&] { return inside_ == 0; });
  }
  close();
  return ncclSuccess;
}

void Communicator::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  fabric_.close();
  write_statistics();
  tuner_.close();
  ContextScope scope(device_.context());
  for (CUevent event : {last_, fork_, in_capture_}) {
    if (event != nullptr) ::cuEventDestroy(event);
  }
}

void Communicator::write_statistics() {
  const char* path = ::getenv("EMULATOR_NCCL_STATS");
  if (path == nullptr || *path == '\0' || !joined_) return;
  char line[512];
  auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  int length = ::snprintf(
      line, sizeof line,
      "{\"rank\": %d, \"ranks\": %d, \"p2p_internode_bytes\": %llu, "
      "\"p2p_internode_messages\": %llu, \"p2p_intranode_bytes\": %llu, "
      "\"p2p_intranode_messages\": %llu, \"p2p_self_bytes\": %llu, \"p2p_self_messages\": %llu}\n",
      rank_, ranks_, number(traffic_.internode.bytes), number(traffic_.internode.messages),
      number(traffic_.intranode.bytes), number(traffic_.intranode.messages),
      number(traffic_.self.bytes), number(traffic_.self.messages));
  UniqueFd file(::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid() || ::write(file.get(), line, static_cast<size_t>(length)) != length) {
    fail_system("writing EMULATOR_NCCL_STATS to %s", path);
  }
}

}  // namespace railyard::emulator
