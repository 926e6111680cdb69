// SPDX-License-Identifier: Apache-2.0
//
// Contract of graphs: what a launch does and in which order, events, how long things live.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "graph_fixture.h"

namespace {

using GraphTest = CudaTest;

/// Tells when the destructor of a user object has run.
class Witness {
 public:
  CUuserObject object() {
    CUuserObject object = nullptr;
    EXPECT_CUDA(cuUserObjectCreate(&object, this, gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return object;
  }
  bool ended() {
    std::lock_guard lock(mutex_);
    return ended_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
  }
  CUresult driver = CUDA_SUCCESS;  ///< what a call of the driver returned in the destructor

 private:
  static void CUDA_CB gone(void* data) {
    auto* self = static_cast<Witness*>(data);
    CUcontext context = nullptr;
    self->driver = cuCtxGetCurrent(&context);
    std::lock_guard lock(self->mutex_);
    self->ended_ = true;
    self->changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

TEST_F(GraphTest, LaunchesRepeatTheWork) {
  OwnStream stream;
  Buffer from(64);
  Buffer to(64);
  std::atomic<int> calls{0};
  begin(stream);
  EXPECT_CUDA(cuMemcpyDtoDAsync(to.address(), from.address(), 64, stream));
  EXPECT_CUDA(cuMemsetD8Async(from.address(), 9, 1, stream));
  EXPECT_CUDA(cuLaunchHostFunc(stream, count_up, &calls));
  OwnGraph graph(end(stream));
  EXPECT_EQ(calls, 0);
  for (uint8_t round = 1; round < 4; ++round) {
    from.write(std::vector<uint8_t>(64, round));
    graph.launch(stream);
    EXPECT_CUDA(cuStreamSynchronize(stream));
    EXPECT_EQ(to.read(), std::vector<uint8_t>(64, round));
    EXPECT_EQ(from.read()[0], 9);
    EXPECT_EQ(calls, round);
  }
}

TEST_F(GraphTest, NodesTellTheirTypesInOrder) {
  OwnStream stream;
  OwnEvent event;
  Buffer buffer(64);
  std::atomic<int> calls{0};
  begin(stream);
  EXPECT_CUDA(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
  EXPECT_CUDA(cuMemsetD8Async(buffer.address(), 1, 32, stream));
  EXPECT_CUDA(cuMemcpyDtoDAsync(buffer.address() + 32, buffer.address(), 32, stream));
  EXPECT_CUDA(cuLaunchHostFunc(stream, count_up, &calls));
  EXPECT_CUDA(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
  OwnGraph graph(end(stream));
  size_t count = 0;
  EXPECT_CUDA(cuGraphGetNodes(graph.graph(), nullptr, &count));
  ASSERT_EQ(count, 5U);
  CUgraphNode nodes[5];
  EXPECT_CUDA(cuGraphGetNodes(graph.graph(), nodes, &count));
  const CUgraphNodeType types[5] = {CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_MEMSET,
                                    CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST,
                                    CU_GRAPH_NODE_TYPE_EVENT_RECORD};
  for (size_t i = 0; i < 5; ++i) {
    CUgraphNodeType type{};
    EXPECT_CUDA(cuGraphNodeGetType(nodes[i], &type));
    EXPECT_EQ(type, types[i]);
    CUgraphNode before[2] = {};
    size_t edges = 2;
    EXPECT_CUDA(cuGraphNodeGetDependencies(nodes[i], before, nullptr, &edges));
    EXPECT_EQ(edges, i == 0 ? 0U : 1U);
    if (i > 0) {
      EXPECT_EQ(before[0], nodes[i - 1]);
    }
  }
  size_t roots = 1;
  CUgraphNode root = nullptr;
  EXPECT_CUDA(cuGraphGetRootNodes(graph.graph(), &root, &roots));
  EXPECT_EQ(root, nodes[0]);
}

TEST_F(GraphTest, LaunchesOfOneGraphFollowOneAnotherOnAnyStreams) {
  Gate gate;
  OwnStream first;
  OwnStream second;
  std::atomic<int> calls{0};
  begin(first);
  EXPECT_CUDA(cuLaunchHostFunc(first, count_up, &calls));
  OwnGraph graph(end(first));
  gate.hold(first);
  graph.launch(first);
  graph.launch(second);
  EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(calls, 0);
  gate.open();
  EXPECT_CUDA(cuStreamSynchronize(second));
  EXPECT_EQ(calls, 2);
}

TEST_F(GraphTest, BranchesRunAtTheSameTime) {
  OwnStream origin;
  OwnStream branch;
  OwnEvent fork;
  OwnEvent join;
  Pinned<uint32_t> words(2);
  words.get()[0] = words.get()[1] = 0;
  begin(origin);
  EXPECT_CUDA(cuEventRecord(fork, origin));
  EXPECT_CUDA(cuStreamWaitEvent(branch, fork, 0));
  EXPECT_EQ(status_of(branch), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  // Each branch waits for what the other writes.
  EXPECT_CUDA(cuStreamWriteValue32(origin, words.device(), 1, 0));
  EXPECT_CUDA(cuStreamWaitValue32(origin, words.device() + 4, 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CUDA(cuStreamWaitValue32(branch, words.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CUDA(cuStreamWriteValue32(branch, words.device() + 4, 1, 0));
  EXPECT_CUDA(cuEventRecord(join, branch));
  EXPECT_CUDA(cuStreamWaitEvent(origin, join, 0));
  EXPECT_CUDA(cuStreamWriteValue32(origin, words.device(), 2, 0));
  OwnGraph graph(end(origin));
  EXPECT_EQ(status_of(branch), CU_STREAM_CAPTURE_STATUS_NONE);
  for (int round = 0; round < 3; ++round) {
    words.get()[0] = words.get()[1] = 0;
    graph.launch(origin);
    EXPECT_CUDA(cuStreamSynchronize(origin));
    EXPECT_EQ(words.get()[0], 2U);
  }
}

TEST_F(GraphTest, LaterWorkOfTheStreamWaitsForTheWholeGraph) {
  Gate gate;
  OwnStream origin;
  OwnStream branch;
  OwnEvent event;
  begin(origin);
  EXPECT_CUDA(cuEventRecord(event, origin));
  EXPECT_CUDA(cuStreamWaitEvent(branch, event, 0));
  gate.hold(branch);
  EXPECT_CUDA(cuEventRecord(event, branch));
  EXPECT_CUDA(cuStreamWaitEvent(origin, event, 0));
  OwnGraph graph(end(origin));
  graph.launch(origin);
  EXPECT_EQ(cuStreamQuery(origin), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_CUDA(cuStreamSynchronize(origin));
}

TEST_F(GraphTest, ExternalEventsOrderGraphsAndStreams) {
  Gate gate;
  OwnStream captured;
  OwnStream eager;
  OwnEvent over;
  std::atomic<int> calls{0};
  begin(captured);
  EXPECT_CUDA(cuStreamWaitEvent(captured, over, CU_EVENT_WAIT_EXTERNAL));
  EXPECT_CUDA(cuLaunchHostFunc(captured, count_up, &calls));
  EXPECT_CUDA(cuEventRecordWithFlags(over, captured, CU_EVENT_RECORD_EXTERNAL));
  OwnGraph graph(end(captured));
  gate.hold(eager);
  EXPECT_CUDA(cuEventRecord(over, eager));
  graph.launch(captured);
  EXPECT_CUDA(cuStreamWaitEvent(eager, over, 0));
  EXPECT_EQ(cuEventQuery(over), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(calls, 0);
  gate.open();
  EXPECT_CUDA(cuEventSynchronize(over));
  EXPECT_EQ(calls, 1);
  EXPECT_CUDA(cuStreamSynchronize(eager));
  EXPECT_EQ(cuStreamWaitEvent(eager, over, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventRecordWithFlags(over, eager, CU_EVENT_RECORD_EXTERNAL),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, UserObjectsLiveAsLongAsGraphAndExecutables) {
  OwnStream stream;
  Witness witness;
  OwnEvent event;
  CUgraph graph = nullptr;
  begin(stream);
  CUstreamCaptureStatus status{};
  EXPECT_CUDA(cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  EXPECT_CUDA(cuGraphRetainUserObject(graph, witness.object(), 1, CU_GRAPH_USER_OBJECT_MOVE));
  // An event keeps nothing of the capture it was recorded in.
  EXPECT_CUDA(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
  EXPECT_CUDA(cuEventRecord(event, stream));
  EXPECT_EQ(end(stream), graph);
  CUgraphExec exec = nullptr;
  EXPECT_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_CUDA(cuGraphDestroy(graph));
  Gate gate;
  gate.hold(stream);
  EXPECT_CUDA(cuGraphLaunch(exec, stream));
  EXPECT_CUDA(cuGraphExecDestroy(exec));
  EXPECT_FALSE(witness.ended());
  gate.open();
  witness.wait();
}

TEST_F(GraphTest, UserObjectsAreCounted) {
  Witness witness;
  CUuserObject object = witness.object();
  CUgraph graphs[2] = {};
  for (CUgraph& graph : graphs) {
    EXPECT_CUDA(cuGraphCreate(&graph, 0));
    EXPECT_CUDA(cuGraphRetainUserObject(graph, object, 1, 0));
  }
  EXPECT_CUDA(cuUserObjectRetain(object, 2));
  EXPECT_CUDA(cuUserObjectRelease(object, 3));
  EXPECT_CUDA(cuGraphDestroy(graphs[0]));
  EXPECT_FALSE(witness.ended());
  EXPECT_EQ(cuGraphReleaseUserObject(graphs[1], object, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuGraphReleaseUserObject(graphs[1], object, 1));
  witness.wait();
  EXPECT_CUDA(cuGraphDestroy(graphs[1]));
}

// NVIDIA's driver may let it pass.
TEST_F(GraphTest, EmulatedDestructorsMustNotCallTheDriver) {
  Witness witness;
  EXPECT_CUDA(cuUserObjectRelease(witness.object(), 1));
  witness.wait();
  EXPECT_EQ(witness.driver, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(GraphTest, AFailedCaptureGivesItsObjectsBack) {
  OwnStream stream;
  Witness witness;
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status{};
  begin(stream);
  EXPECT_CUDA(cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  EXPECT_CUDA(cuGraphRetainUserObject(graph, witness.object(), 1, CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  fail_to_end(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  witness.wait();
}

TEST_F(GraphTest, GraphsMadeByHand) {
  std::atomic<int> calls{0};
  CUgraph graph = nullptr;
  EXPECT_CUDA(cuGraphCreate(&graph, 0));
  CUgraphNode first = nullptr;
  CUgraphNode second = nullptr;
  CUDA_HOST_NODE_PARAMS host{};
  host.fn = count_up;
  host.userData = &calls;
  EXPECT_CUDA(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  EXPECT_CUDA(cuGraphAddHostNode(&second, graph, &first, 1, &host));
  OwnGraph own(graph);
  OwnStream stream(CU_STREAM_DEFAULT);
  own.launch(stream);
  own.launch(nullptr);
  EXPECT_CUDA(cuStreamSynchronize(nullptr));
  EXPECT_EQ(calls, 2);
}

TEST_F(GraphTest, Misuse) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cuGraphCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuGraphCreate(&graph, 0));
  EXPECT_EQ(cuGraphInstantiateWithFlags(nullptr, graph, 0), CUDA_ERROR_INVALID_VALUE);
  CUuserObject object = nullptr;
  EXPECT_EQ(cuUserObjectCreate(&object, nullptr, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuUserObjectCreate(&object, nullptr, count_up, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuGraphDestroy(graph));
}

// NVIDIA's driver does not promise to survive what these do.
TEST_F(GraphTest, EmulatedStaleHandles) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_CUDA(cuGraphCreate(&graph, 0));
  EXPECT_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_CUDA(cuGraphDestroy(graph));
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuGraphExecDestroy(exec));
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, ManyThreadsCaptureAndLaunch) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      EXPECT_CUDA(cuCtxSetCurrent(context_));
      OwnStream stream;
      OwnStream other;
      OwnEvent event(CU_EVENT_DISABLE_TIMING);
      std::atomic<int> calls{0};
      for (int round = 0; round < 10; ++round) {
        begin(stream);
        EXPECT_CUDA(cuEventRecord(event, stream));
        EXPECT_CUDA(cuStreamWaitEvent(other, event, 0));
        EXPECT_CUDA(cuLaunchHostFunc(other, count_up, &calls));
        EXPECT_CUDA(cuLaunchHostFunc(stream, count_up, &calls));
        EXPECT_CUDA(cuEventRecord(event, other));
        EXPECT_CUDA(cuStreamWaitEvent(stream, event, 0));
        OwnGraph graph(end(stream));
        graph.launch(stream);
        graph.launch(other);
        EXPECT_CUDA(cuStreamSynchronize(other));
      }
      EXPECT_EQ(calls, 40);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
