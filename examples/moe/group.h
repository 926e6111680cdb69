// SPDX-License-Identifier: Apache-2.0
// The ranks of the job as one NCCL communicator, with the few transfers the trainer needs. All but
// close() and synchronize() queue work on the stream and return.
//
// The time of the exchanges (all-to-all of counts, dispatch, combine, and their ways back) is taken
// with CUDA events on the stream around each: it includes waiting for peers that come later.
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "compute.h"
#include "plan.h"

namespace moe {

class Group final {
 public:
  Group(const ncclUniqueId& id, int rank, int ranks, cudaStream_t stream);
  ~Group();  // abort(), unless close() came before
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Part i of `send` to rank i, part i of `receive` from rank i.
  void all_to_all(const std::int32_t* send, std::int32_t* receive, Index part);
  // One group of sends and receives of rows of `width` elements.
  void exchange(const Messages& messages, const float* send, float* receive, Index width);
  // Sums over the ranks, in place.
  void all_reduce(float* x, Index size);
  void all_gather(const std::uint8_t* send, std::uint8_t* receive, Index size);

  // Waits for all queued work and reports what NCCL has met meanwhile.
  void synchronize();
  // Milliseconds of the exchanges since the last call. REQUIRES: synchronize() came before.
  float take_exchange_ms();
  void close();
  // Ends the communicator without waiting for anyone; queued exchanges come to an end.
  void abort();

 private:
  struct Span {
    cudaEvent_t begin;
    cudaEvent_t end;
  };
  const Span& start_span();

  int rank_;
  int ranks_;
  cudaStream_t stream_;
  ncclComm_t comm_ = nullptr;
  std::vector<Span> spans_;
  std::size_t used_spans_ = 0;
};

}  // namespace moe
