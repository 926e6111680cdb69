// SPDX-License-Identifier: Apache-2.0
#include "graph.h"

#include "require.h"

namespace property {

Graph::Graph(std::vector<cudaStream_t> streams, cudaStreamCaptureMode mode,
             const std::function<void()>& work)
    : streams_(std::move(streams)) {
  REQUIRE(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  REQUIRE(cudaStreamBeginCapture(streams_.front(), mode));
  fork();
  work();
  join();
  REQUIRE(cudaStreamEndCapture(streams_.front(), &graph_));
  REQUIRE(cudaGraphInstantiate(&exec_, graph_, 0));
}

Graph::~Graph() {
  REQUIRE(cudaGraphExecDestroy(exec_));
  REQUIRE(cudaGraphDestroy(graph_));
  REQUIRE(cudaEventDestroy(event_));
}

void Graph::launch() const {
  join();
  REQUIRE(cudaGraphLaunch(exec_, streams_.front()));
  fork();
}

void Graph::join() const {
  for (size_t i = 1; i < streams_.size(); ++i) {
    REQUIRE(cudaEventRecord(event_, streams_[i]));
    REQUIRE(cudaStreamWaitEvent(streams_.front(), event_, 0));
  }
}

void Graph::fork() const {
  REQUIRE(cudaEventRecord(event_, streams_.front()));
  for (size_t i = 1; i < streams_.size(); ++i) {
    REQUIRE(cudaStreamWaitEvent(streams_[i], event_, 0));
  }
}

}  // namespace property
