// SPDX-License-Identifier: Apache-2.0
// NCCL calls of the trainer.
#include "group.h"

#include "cuda_check.h"

namespace moe {

Group::Group(const ncclUniqueId& id, int rank, int ranks, cudaStream_t stream)
    : rank_(rank), ranks_(ranks), stream_(stream) {
  check(ncclCommInitRank(&comm_, ranks, id, rank), "ncclCommInitRank");
}

Group::~Group() {
  abort();
  for (const Span& span : spans_) {
    cudaEventDestroy(span.begin);
    cudaEventDestroy(span.end);
  }
}

void Group::all_to_all(const std::int32_t* send, std::int32_t* receive, Index part) {
  const Span& span = start_span();
  check(ncclAlltoAll(send, receive, static_cast<std::size_t>(part), ncclInt32, comm_, stream_),
        "ncclAlltoAll");
  check(cudaEventRecord(span.end, stream_), "cudaEventRecord");
}

void Group::exchange(const Messages& messages, const float* send, float* receive, Index width) {
  const Span& span = start_span();
  check(ncclGroupStart(), "ncclGroupStart");
  for (const Message& m : messages.sends) {
    check(ncclSend(send + m.row * width, static_cast<std::size_t>(m.rows * width), ncclFloat32,
                   m.peer, comm_, stream_),
          "ncclSend");
  }
  for (const Message& m : messages.receives) {
    check(ncclRecv(receive + m.row * width, static_cast<std::size_t>(m.rows * width), ncclFloat32,
                   m.peer, comm_, stream_),
          "ncclRecv");
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  check(cudaEventRecord(span.end, stream_), "cudaEventRecord");
}

void Group::all_reduce(float* x, Index size) {
  check(ncclAllReduce(x, x, static_cast<std::size_t>(size), ncclFloat32, ncclSum, comm_, stream_),
        "ncclAllReduce");
}

void Group::all_gather(const std::uint8_t* send, std::uint8_t* receive, Index size) {
  check(ncclAllGather(send, receive, static_cast<std::size_t>(size), ncclUint8, comm_, stream_),
        "ncclAllGather");
}

void Group::synchronize() {
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  ncclResult_t met = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &met), "ncclCommGetAsyncError");
  check(met, "NCCL, while work was under way");
}

float Group::take_exchange_ms() {
  float total = 0;
  for (std::size_t i = 0; i < used_spans_; ++i) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, spans_[i].begin, spans_[i].end), "cudaEventElapsedTime");
    total += ms;
  }
  used_spans_ = 0;
  return total;
}

void Group::close() {
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  check(ncclCommDestroy(comm_), "ncclCommDestroy");
  comm_ = nullptr;
}

void Group::abort() {
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
}

const Group::Span& Group::start_span() {
  if (used_spans_ == spans_.size()) {
    Span span{};
    check(cudaEventCreate(&span.begin), "cudaEventCreate");
    check(cudaEventCreate(&span.end), "cudaEventCreate");
    spans_.push_back(span);
  }
  const Span& span = spans_[used_spans_++];
  check(cudaEventRecord(span.begin, stream_), "cudaEventRecord");
  return span;
}

}  // namespace moe
