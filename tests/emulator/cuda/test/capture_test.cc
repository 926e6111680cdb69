// SPDX-License-Identifier: Apache-2.0
//
// Contract of stream capture: what is told about it, and what it forbids to whom.
#include <thread>

#include "graph_fixture.h"

namespace {

using CaptureTest = CudaTest;

constexpr CUresult kUnsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
constexpr CUresult kInvalidated = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

/// Runs `f()` in another thread with the context current.
template <typename F>
void elsewhere(CUcontext context, F f) {
  std::thread([&] {
    EXPECT_CUDA(cuCtxSetCurrent(context));
    f();
  }).join();
}

/// Whether the calling thread may allocate. (An unsafe call is what modes are about.)
CUresult allocate() {
  CUdeviceptr memory = 0;
  CUresult result = cuMemAlloc(&memory, 64);
  if (result == CUDA_SUCCESS) result = cuMemFree(memory);
  return result;
}

TEST_F(CaptureTest, InfoTellsCaptureGraphAndDependencies) {
  OwnStream stream;
  std::atomic<int> calls{0};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  cuuint64_t first = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  size_t count = 9;
  EXPECT_CUDA(cuStreamGetCaptureInfo(stream, &status, &first, &graph, &after, nullptr, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  begin(stream);
  EXPECT_CUDA(cuStreamGetCaptureInfo(stream, &status, &first, &graph, &after, nullptr, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(count, 0U);
  EXPECT_CUDA(cuLaunchHostFunc(stream, count_up, &calls));
  EXPECT_CUDA(cuStreamGetCaptureInfo(stream, &status, &first, &graph, &after, nullptr, &count));
  ASSERT_EQ(count, 1U);
  CUgraphNodeType type{};
  EXPECT_CUDA(cuGraphNodeGetType(after[0], &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_HOST);
  EXPECT_EQ(end(stream), graph);
  EXPECT_CUDA(cuGraphDestroy(graph));

  begin(stream);
  cuuint64_t second = 0;
  EXPECT_CUDA(cuStreamGetCaptureInfo(stream, &status, &second, nullptr, nullptr, nullptr, nullptr));
  EXPECT_NE(first, second);
  EXPECT_CUDA(cuGraphDestroy(end(stream)));
}

TEST_F(CaptureTest, DependenciesCanBeSetAndAdded) {
  OwnStream stream;
  std::atomic<int> calls{0};
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  begin(stream);
  EXPECT_CUDA(cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  CUgraphNode nodes[2] = {};
  for (CUgraphNode& node : nodes) EXPECT_CUDA(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  EXPECT_CUDA(cuStreamUpdateCaptureDependencies(stream, nodes, nullptr, 1,
                                                CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  EXPECT_CUDA(cuStreamUpdateCaptureDependencies(stream, nodes + 1, nullptr, 1,
                                                CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  EXPECT_CUDA(cuLaunchHostFunc(stream, count_up, &calls));
  const CUgraphNode* after = nullptr;
  size_t count = 0;
  EXPECT_CUDA(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &after, nullptr, &count));
  ASSERT_EQ(count, 1U);
  size_t edges = 0;
  EXPECT_CUDA(cuGraphNodeGetDependencies(after[0], nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 2U);
  OwnGraph own(end(stream));
  own.launch(stream);
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(calls, 1);
}

TEST_F(CaptureTest, AStreamThatCapturesCannotBeWaitedFor) {
  for (int call = 0; call < 4; ++call) {
    OwnStream stream;
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(call == 0   ? cuStreamSynchronize(stream)
              : call == 1 ? cuStreamQuery(stream)
              : call == 2 ? cuCtxSynchronize()
                          : cuStreamAddCallback(
                                stream, [](CUstream, CUresult, void*) {}, nullptr, 0),
              kUnsupported);
    EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(cuLaunchHostFunc(stream, count_up, nullptr), kInvalidated);
    fail_to_end(stream, kInvalidated);
    EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_CUDA(cuStreamSynchronize(stream));
  }
}

TEST_F(CaptureTest, EventsOfACaptureCannotBeWaitedForByTheHost) {
  OwnStream stream;
  OwnEvent event;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CUDA(cuEventRecord(event, stream));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
  fail_to_end(stream, kInvalidated);
  EXPECT_CUDA(cuEventRecord(event, stream));
  EXPECT_CUDA(cuEventSynchronize(event));
}

TEST_F(CaptureTest, PageableMemoryIsNotForGraphs) {
  OwnStream stream;
  Buffer buffer(64);
  char pageable[64];
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(cuMemcpyDtoHAsync(pageable, buffer.address(), 64, stream), kUnsupported);
  fail_to_end(stream, kInvalidated);
}

TEST_F(CaptureTest, ModesSayWhoMayMakeUnsafeCalls) {
  const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                       CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                       CU_STREAM_CAPTURE_MODE_RELAXED};
  for (CUstreamCaptureMode of_capture : modes) {
    for (CUstreamCaptureMode of_thread : modes) {
      for (bool same_thread : {true, false}) {
        SCOPED_TRACE(std::to_string(of_capture) + std::to_string(of_thread) +
                     std::to_string(same_thread));
        OwnStream stream;
        begin(stream, of_capture);
        const bool allowed = of_thread == CU_STREAM_CAPTURE_MODE_RELAXED ||
                             (same_thread ? of_capture == CU_STREAM_CAPTURE_MODE_RELAXED
                                          : of_capture != CU_STREAM_CAPTURE_MODE_GLOBAL ||
                                                of_thread == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        const auto call = [&] {
          CUstreamCaptureMode mode = of_thread;
          EXPECT_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
          EXPECT_EQ(allocate(), allowed ? CUDA_SUCCESS : kUnsupported);
          EXPECT_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
        };
        if (same_thread) {
          call();
        } else {
          elsewhere(context_, call);
        }
        if (allowed) {
          EXPECT_CUDA(cuGraphDestroy(end(stream)));
        } else {
          fail_to_end(stream, kInvalidated);
        }
      }
    }
  }
}

TEST_F(CaptureTest, UnsafeCalls) {
  OwnEvent event;
  Buffer buffer(64);
  void* host = nullptr;
  const auto calls = {
      +[](void**, CUevent e, CUdeviceptr) { return cuEventQuery(e); },
      +[](void**, CUevent, CUdeviceptr d) { return cuMemFree(d); },
      +[](void** h, CUevent, CUdeviceptr) { return cuMemHostAlloc(h, 64, 0); },
      +[](void**, CUevent, CUdeviceptr d) { return cuMemcpyDtoD(d, d + 32, 32); },
  };
  for (const auto call : calls) {
    OwnStream stream;
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_EQ(call(&host, event, buffer.address()), kUnsupported);
    fail_to_end(stream, kInvalidated);
  }
}

TEST_F(CaptureTest, TheLegacyStreamIsOutOfBoundsBesideBlockingStreams) {
  Buffer buffer(64);
  CUstreamCaptureStatus status{};
  {
    OwnStream stream(CU_STREAM_DEFAULT);
    begin(stream);
    EXPECT_EQ(cuMemsetD8Async(buffer.address(), 1, 64, nullptr),
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    fail_to_end(stream, kInvalidated);
    begin(stream);
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    fail_to_end(stream, kInvalidated);
  }
  OwnStream stream(CU_STREAM_NON_BLOCKING);
  begin(stream);
  EXPECT_CUDA(cuMemsetD8Async(buffer.address(), 1, 64, nullptr));
  EXPECT_CUDA(cuStreamSynchronize(nullptr));
  EXPECT_EQ(status_of(nullptr), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CUDA(cuGraphDestroy(end(stream)));
  EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED), kUnsupported);
}

TEST_F(CaptureTest, StreamsThatJoinMustBeJoinedAgain) {
  OwnStream origin;
  OwnStream branch;
  OwnEvent event;
  std::atomic<int> calls{0};
  begin(origin);
  EXPECT_CUDA(cuEventRecord(event, origin));
  EXPECT_CUDA(cuStreamWaitEvent(branch, event, 0));
  EXPECT_CUDA(cuLaunchHostFunc(branch, count_up, &calls));
  fail_to_end(origin, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(status_of(branch), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CUDA(cuLaunchHostFunc(branch, count_up, &calls));
  EXPECT_CUDA(cuStreamSynchronize(branch));
  EXPECT_EQ(calls, 1);
}

TEST_F(CaptureTest, CapturesDoNotMergeNorReachOutside) {
  OwnStream first;
  OwnStream second;
  OwnEvent event;
  OwnEvent outside;
  OwnStream other;
  EXPECT_CUDA(cuEventRecord(outside, other));
  begin(first);
  begin(second);
  EXPECT_CUDA(cuEventRecord(event, first));
  EXPECT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  fail_to_end(first, kInvalidated);
  fail_to_end(second, kInvalidated);
  begin(first);
  EXPECT_EQ(cuStreamWaitEvent(first, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  fail_to_end(first, kInvalidated);
}

TEST_F(CaptureTest, ACaptureEndsWhereItBegan) {
  OwnStream origin;
  OwnStream branch;
  OwnEvent event;
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(origin, &graph), CUDA_ERROR_ILLEGAL_STATE);
  begin(origin);
  EXPECT_EQ(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  elsewhere(context_, [&] {
    EXPECT_EQ(cuStreamEndCapture(origin, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  });
  EXPECT_CUDA(cuEventRecord(event, origin));
  EXPECT_CUDA(cuStreamWaitEvent(branch, event, 0));
  EXPECT_EQ(cuStreamEndCapture(branch, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  fail_to_end(origin, kInvalidated);
  begin(origin, CU_STREAM_CAPTURE_MODE_RELAXED);
  elsewhere(context_, [&] { graph = end(origin); });
  EXPECT_CUDA(cuGraphDestroy(graph));
}

// What NVIDIA's driver does is not documented.
TEST_F(CaptureTest, EmulatedStreamsMayEndWhileTheyCapture) {
  CUstream stream = nullptr;
  EXPECT_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CUDA(cuStreamDestroy(stream));
  EXPECT_CUDA(allocate());
}

TEST_F(CaptureTest, EmulatedLaunchesCannotBeCaptured) {
  OwnStream stream;
  begin(stream);
  OwnGraph graph(end(stream));
  OwnStream other;
  CUgraphExec exec = nullptr;
  EXPECT_CUDA(cuGraphInstantiateWithFlags(&exec, graph.graph(), 0));
  begin(other);
  EXPECT_EQ(cuGraphLaunch(exec, other), kUnsupported);
  fail_to_end(other, kInvalidated);
  EXPECT_CUDA(cuGraphExecDestroy(exec));
}

}  // namespace
