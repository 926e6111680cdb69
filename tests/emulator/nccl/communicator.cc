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

/// Captured work lives as long as any graph may, which we cannot know: for good.
template <typename T>
void keep_for_good(T* object) {
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<T*>;
  std::lock_guard lock(mutex);
  kept.push_back(object);
}

}  // namespace

Communicator::Communicator() : cancel_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ncclResult_t Communicator::check_usable() const {
  ncclResult_t state = state_.load();
  if (state != ncclSuccess) return fail(state, "rank %d: the communicator has failed", rank_);
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

ncclResult_t Communicator::check_batch(const Batch& batch) const {
  ncclResult_t result = check_self(batch.points, rank_);
  if (result != ncclSuccess) return result;
  ContextScope scope(device_.context());
  size_t capturing = 0;
  for (CUstream stream : batch.streams) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    result = check(::cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
    if (result != ncclSuccess) return result;
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) ++capturing;
  }
  if (capturing == 0 || capturing == batch.streams.size()) return ncclSuccess;
  return fail(ncclInvalidUsage,
              "rank %d: of the streams of a group either all or none must be captured", rank_);
}

/// The last stream is launched on: it waits for the others and for the previous work.
ncclResult_t Communicator::order_before(const Batch& batch, bool capturing) {
  CUstream stream = batch.streams.back();
  CUresult result = CUDA_SUCCESS;
  if (last_ == nullptr) {
    result = ::cuEventCreate(&last_, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = ::cuEventCreate(&fork_, CU_EVENT_DISABLE_TIMING);
  }
  for (size_t i = 0; i + 1 < batch.streams.size() && result == CUDA_SUCCESS; ++i) {
    result = ::cuEventRecord(fork_, batch.streams[i]);
    if (result == CUDA_SUCCESS) result = ::cuStreamWaitEvent(stream, fork_, 0);
  }
  // A handle of a thread's default stream names another stream in each thread.
  bool same = stream == last_stream_ && stream != CU_STREAM_PER_THREAD;
  if (result == CUDA_SUCCESS && launched_ && !same && !capturing) {
    result = ::cuStreamWaitEvent(stream, last_, 0);
  }
  return check(result, "ordering the streams of a group");
}

ncclResult_t Communicator::order_after(const Batch& batch, bool capturing) {
  CUstream stream = batch.streams.back();
  CUevent event = capturing ? fork_ : last_;
  CUresult result = CUDA_SUCCESS;
  if (!capturing || batch.streams.size() > 1) result = ::cuEventRecord(event, stream);
  for (size_t i = 0; i + 1 < batch.streams.size() && result == CUDA_SUCCESS; ++i) {
    result = ::cuStreamWaitEvent(batch.streams[i], event, 0);
  }
  if (!capturing) {
    last_stream_ = stream;
    launched_ = true;
  }
  return check(result, "ordering the streams of a group");
}

ncclResult_t Communicator::launch(Batch batch) {
  ContextScope scope(device_.context());
  CUstream stream = batch.streams.back();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ncclResult_t result = check(::cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  bool capturing = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (result == ncclSuccess) result = order_before(batch, capturing);
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
  Work* launched = work.release();  // run_in_stream owns it now
  if (capturing) keep_for_good(launched);
  return order_after(batch, capturing);
}

void Communicator::run_in_stream(void* argument) {
  auto* work = static_cast<Work*>(argument);
  std::shared_ptr<Communicator> self = work->communicator;
  if (self->enter()) {
    std::lock_guard kernel(self->kernel_);
    if (self->state() == ncclSuccess) {
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

ncclResult_t Communicator::give_up(ncclResult_t reason) {
  ncclResult_t none = ncclSuccess;
  state_.compare_exchange_strong(none, reason);
  return reason;
}

void Communicator::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return outstanding_ == 0 && inside_ == 0; });
}

ncclResult_t Communicator::finalize() {
  if (finalized_) {
    return fail(ncclInvalidArgument, "rank %d: the communicator was finalized before", rank_);
  }
  finalized_ = true;
  wait_until_idle();
  return ncclSuccess;
}

ncclResult_t Communicator::destroy() {
  wait_until_idle();
  if (state() == ncclSuccess && joined_) fabric_.drain();
  close();
  return ncclSuccess;
}

ncclResult_t Communicator::abort() {
  aborted_ = true;
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
  if (last_ == nullptr) return;
  ContextScope scope(device_.context());
  ::cuEventDestroy(last_);
  ::cuEventDestroy(fork_);
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
