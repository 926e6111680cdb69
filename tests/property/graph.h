// SPDX-License-Identifier: Apache-2.0
//
// Work captured from several streams, to be launched as often as one likes: each launch is as if
// the work were posted to these streams.
#pragma once

#include <functional>
#include <vector>

#include <cuda_runtime_api.h>

namespace property {

class Graph {
 public:
  /// `work()` may post to the streams, and to no others.
  Graph(std::vector<cudaStream_t> streams, cudaStreamCaptureMode mode,
        const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() const;

 private:
  /// What comes next on the first stream waits for what is on the others, or the other way round.
  void join() const;
  void fork() const;

  const std::vector<cudaStream_t> streams_;
  cudaEvent_t event_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace property
