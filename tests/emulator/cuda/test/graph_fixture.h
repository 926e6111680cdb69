// SPDX-License-Identifier: Apache-2.0
//
// For the contract tests of capture and graphs.
#pragma once

#include "fixture.h"

/// A captured graph that can be launched; both are destroyed with it.
class OwnGraph {
 public:
  /// Takes the graph.
  explicit OwnGraph(CUgraph graph) : graph_(graph) {
    EXPECT_CUDA(cuGraphInstantiateWithFlags(&exec_, graph, 0));
  }
  ~OwnGraph() {
    EXPECT_CUDA(cuGraphExecDestroy(exec_));
    EXPECT_CUDA(cuGraphDestroy(graph_));
  }
  OwnGraph(const OwnGraph&) = delete;
  OwnGraph& operator=(const OwnGraph&) = delete;
  void launch(CUstream stream) const { EXPECT_CUDA(cuGraphLaunch(exec_, stream)); }
  CUgraph graph() const { return graph_; }

 private:
  CUgraph graph_;
  CUgraphExec exec_ = nullptr;
};

inline void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
  EXPECT_CUDA(cuStreamBeginCapture(stream, mode));
}

inline CUgraph end(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_CUDA(cuStreamEndCapture(stream, &graph));
  EXPECT_NE(graph, nullptr);
  return graph;
}

/// The capture fails to end, with `expected`.
inline void fail_to_end(CUstream stream, CUresult expected) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), expected);
  EXPECT_EQ(graph, nullptr);
}

inline CUstreamCaptureStatus status_of(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_CUDA(cuStreamIsCapturing(stream, &status));
  return status;
}

/// Host function that counts its calls.
inline void CUDA_CB count_up(void* count) { ++*static_cast<std::atomic<int>*>(count); }
