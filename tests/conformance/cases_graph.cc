// SPDX-License-Identifier: Apache-2.0
//
// CUDA graphs with messages in them.
#include <functional>

#include "cases.h"
#include "graph.h"

namespace conformance {
namespace {

using property::Graph;

constexpr size_t kBytes = 1000;

/// Buffers of a ring that is done many times.
struct Ring {
  Ring(Trial& trial, ncclComm_t on) : t(trial), comm(on), buffer(trial, 2, kBytes) {}
  void post(cudaStream_t sends, cudaStream_t receives) const {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, sends));
    NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, receives));
    NCCL(ncclGroupEnd());
  }
  void fill(int number) const { buffer.fill(0, {t.rank, t.next(), number}); }
  void expect(int number) const { buffer.expect(1, {t.previous(), t.rank, number}); }

  Trial& t;
  ncclComm_t comm;
  Buffer buffer;
};

/// A graph is launched several times, with other contents each time, and eager rings in between.
/// `captured` says which ranks replay; the others do all of it eagerly.
void replay(Trial& t, cudaStreamCaptureMode mode, bool captured, bool mixed, size_t streams) {
  const Ring ring(t, t.comm());
  std::vector<cudaStream_t> used;
  for (size_t i = 0; i < streams; ++i) used.push_back(t.stream());
  const auto post = [&] { ring.post(used.front(), used.back()); };
  std::unique_ptr<Graph> graph;
  if (captured) graph = std::make_unique<Graph>(used, mode, post);
  for (int number = 0; number < 6; ++number) {
    ring.fill(number);
    if (captured && !(mixed && number % 2 == 0)) {
      graph->launch();
    } else {
      post();
    }
    for (const cudaStream_t stream : used) t.sync(stream);
    ring.expect(number);
  }
}

/// Launches follow one another without anybody waiting.
void many_launches(Trial& t) {
  const Ring ring(t, t.comm());
  const cudaStream_t stream = t.stream();
  const Graph graph({stream}, cudaStreamCaptureModeThreadLocal, [&] { ring.post(stream, stream); });
  ring.fill(1);
  for (int i = 0; i < 30; ++i) graph.launch();
  t.sync(stream);
  ring.expect(1);
}

/// Nothing happens while capturing, nor if the graph is never launched.
void never_launched(Trial& t) {
  const Ring ring(t, t.comm());
  const cudaStream_t stream = t.stream();
  {
    const Graph graph({stream}, cudaStreamCaptureModeThreadLocal,
                      [&] { ring.post(stream, stream); });
    t.sync(stream);
    ring.buffer.expect_untouched(1);
  }
  ring.fill(1);
  ring.post(stream, stream);
  t.sync(stream);
  ring.expect(1);
}

/// Several groups, other work between them, a collective and an all-to-all in one graph.
void whole_step(Trial& t) {
  const Ring ring(t, t.comm());
  const cudaStream_t stream = t.stream();
  const Buffer copy(t, 1, kBytes), sum(t, 1, 400);
  sum.fill(0, {t.rank, 0, 9});
  const Graph graph({stream}, cudaStreamCaptureModeThreadLocal, [&] {
    ring.post(stream, stream);
    CUDA(cudaMemcpyAsync(copy.at(0), ring.buffer.at(1), kBytes, cudaMemcpyDeviceToDevice, stream));
    NCCL(ncclBroadcast(sum.at(0), sum.at(0), 400, ncclInt8, 1, ring.comm, stream));
    ring.post(stream, stream);
  });
  for (int number = 0; number < 3; ++number) {
    ring.fill(number);
    graph.launch();
    t.sync(stream);
    ring.expect(number);
    copy.expect(0, {t.previous(), t.rank, number});
    sum.expect(0, {1, 0, 9});
  }
}

void two_graphs(Trial& t) {
  const ncclComm_t comm = t.comm();
  const Ring first(t, comm), second(t, comm);
  const cudaStream_t streams[] = {t.stream(), t.stream()};
  const Graph a({streams[0]}, cudaStreamCaptureModeThreadLocal,
                [&] { first.post(streams[0], streams[0]); });
  const Graph b({streams[1]}, cudaStreamCaptureModeThreadLocal,
                [&] { second.post(streams[1], streams[1]); });
  for (int number = 0; number < 4; ++number) {
    first.fill(2 * number);
    second.fill(2 * number + 1);
    a.launch();
    b.launch();
    for (const cudaStream_t stream : streams) t.sync(stream);
    first.expect(2 * number);
    second.expect(2 * number + 1);
  }
}

void two_communicators(Trial& t) {
  const Ring first(t, t.comm()), second(t, t.comm());
  const cudaStream_t stream = t.stream();
  const Graph graph({stream}, cudaStreamCaptureModeThreadLocal, [&] {
    NCCL(ncclGroupStart());
    first.post(stream, stream);
    second.post(stream, stream);
    NCCL(ncclGroupEnd());
  });
  for (int number = 0; number < 3; ++number) {
    first.fill(number);
    second.fill(number + 10);
    graph.launch();
    t.sync(stream);
    first.expect(number);
    second.expect(number + 10);
  }
}

void all_to_all(Trial& t, size_t bytes) {
  if (LACKS(ncclAlltoAll)) return;
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, ranks, kBytes), in(t, ranks, kBytes);
  out.fill_for_all(1);
  const Graph graph({stream}, cudaStreamCaptureModeThreadLocal, [&] {
    NCCL(ncclAlltoAll(out.at(0), in.at(0), bytes, ncclInt8, comm, stream));
  });
  for (int i = 0; i < 3; ++i) graph.launch();
  t.sync(stream);
  if (bytes == kBytes) in.expect_from_all(1);
  in.show("received");
}

/// One of the streams of a group is captured, the other is not.
void one_captured(Trial& t) {
  const Ring ring(t, t.comm());
  const cudaStream_t captured = t.stream(), other = t.stream();
  cudaGraph_t graph = nullptr;
  CUDA(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal));
  NCCL(ncclGroupStart());
  ncclResult_t results[] = {
      ncclSend(ring.buffer.at(0), kBytes, ncclInt8, t.next(), ring.comm, captured),
      ncclRecv(ring.buffer.at(1), kBytes, ncclInt8, t.previous(), ring.comm, other)};
  const ncclResult_t end = ncclGroupEnd();
  // Whether the call that brings the second stream says so or the end of the group does.
  CHECK(results[0] == ncclSuccess && (results[1] == ncclSuccess || results[1] == end));
  t.nccl("ncclGroupEnd()", end);
  cudaStreamEndCapture(captured, &graph);
  if (graph != nullptr) CUDA(cudaGraphDestroy(graph));
  exchange_ring(t, ring.comm, other, kBytes, 1);
}

/// The communicator ends after the graph has been destroyed.
void ends_after_graph(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  {
    const Ring ring(t, comm);
    const Graph graph({stream}, cudaStreamCaptureModeThreadLocal,
                      [&] { ring.post(stream, stream); });
    ring.fill(1);
    graph.launch();
    t.sync(stream);
    ring.expect(1);
  }
  t.destroy(comm);
  exchange_ring(t, t.comm(), stream, kBytes, 2);
}

/// Graphs come and go while the communicator stays.
void many_graphs(Trial& t) {
  const Ring ring(t, t.comm());
  const cudaStream_t stream = t.stream();
  for (int number = 0; number < 20; ++number) {
    const Graph graph({stream}, cudaStreamCaptureModeThreadLocal,
                      [&] { ring.post(stream, stream); });
    ring.fill(number);
    graph.launch();
    t.sync(stream);
    ring.expect(number);
  }
}

/// Zero bytes are matched in a graph, too.
void nothing(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Graph graph({stream}, cudaStreamCaptureModeThreadLocal, [&] {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(nullptr, 0, ncclInt8, t.next(), comm, stream));
    NCCL(ncclRecv(nullptr, 0, ncclInt8, t.previous(), comm, stream));
    NCCL(ncclGroupEnd());
  });
  for (int i = 0; i < 3; ++i) graph.launch();
  t.sync(stream);
}

/// A bad call in a captured group leaves the capture as it was.
void refused(Trial& t) {
  const Ring ring(t, t.comm());
  const cudaStream_t stream = t.stream();
  const Graph graph({stream}, cudaStreamCaptureModeThreadLocal, [&] {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(ring.buffer.at(0), kBytes, ncclInt8, t.next(), ring.comm, stream));
    NCCL(ncclRecv(ring.buffer.at(1), kBytes, ncclInt8, -1, ring.comm, stream));
    NCCL(ncclGroupEnd());
    ring.post(stream, stream);
  });
  ring.fill(1);
  graph.launch();
  t.sync(stream);
  ring.expect(1);
}

}  // namespace

Cases graph_cases() {
  constexpr unsigned kBoth = kProcesses | kThreads;
  constexpr unsigned kMany = kBoth | kThreeNodes | kOneNode;
  constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;
  return {
      {"replay",
       {"5.6/replay", "5.6/capture"},
       kMany,
       [](Trial& t) { replay(t, kLocal, true, false, 1); }},
      {"replay, relaxed capture",
       {"5.6/replay"},
       kMany,
       [](Trial& t) { replay(t, cudaStreamCaptureModeRelaxed, true, false, 1); }},
      {"replay, global capture",
       {"5.6/replay"},
       kProcesses | kOneNode,
       [](Trial& t) { replay(t, cudaStreamCaptureModeGlobal, true, false, 1); }},
      {"replay, two streams",
       {"5.6/capture", "5.5/capture-together"},
       kMany,
       [](Trial& t) { replay(t, kLocal, true, false, 2); }},
      {"replay and eager",
       {"5.6/mixing"},
       kMany,
       [](Trial& t) { replay(t, kLocal, true, true, 1); }},
      {"replay on even ranks",
       {"5.6/mixing"},
       kMany,
       [](Trial& t) { replay(t, kLocal, t.rank % 2 == 0, false, 1); }},
      {"replay on rank 0, mixed",
       {"5.6/mixing"},
       kMany,
       [](Trial& t) { replay(t, kLocal, t.rank == 0, true, 2); }},
      {"many launches", {"5.6/replay"}, kMany, many_launches},
      {"never launched", {"5.6/capture"}, kMany, never_launched},
      {"a whole step in a graph", {"5.6/capture", "5.1/collectives-first"}, kMany, whole_step},
      {"two graphs", {"5.6/mixing"}, kMany, two_graphs},
      {"two communicators in a graph", {"5.6/capture"}, kMany, two_communicators},
      {"all-to-all in a graph",
       {"5.6/capture"},
       kMany,
       [](Trial& t) { all_to_all(t, kBytes); },
       22803},
      {"all-to-all of nothing in a graph",
       {"5.6/capture", "5.3/zero-collectives"},
       kMany,
       [](Trial& t) { all_to_all(t, 0); },
       22803},
      {"one stream captured", {"5.5/capture-together"}, kMany, one_captured},
      {"end after graph", {"5.6/destroy"}, kMany, ends_after_graph},
      {"many graphs", {"5.6/destroy"}, kMany, many_graphs},
      {"nothing in a graph", {"5.6/capture", "5.3/zero-messages"}, kMany, nothing},
      {"refused in a graph", {"5.6/capture", "5.1/latched-error"}, kMany, refused},
  };
}

}  // namespace conformance
