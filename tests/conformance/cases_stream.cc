// SPDX-License-Identifier: Apache-2.0
//
// Streams: which of them a group is on, in which order work happens, and when.
#include "cases.h"

namespace conformance {
namespace {

constexpr size_t kBytes = 1000;

struct Ring {
  Ring(Trial& trial, ncclComm_t on, int number)
      : t(trial), comm(on), buffer(trial, 2, kBytes), number_(number) {
    buffer.fill(0, {t.rank, t.next(), number_});
  }
  void post(cudaStream_t sends, cudaStream_t receives) const {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, sends));
    NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, receives));
    NCCL(ncclGroupEnd());
  }
  void post(cudaStream_t stream) const { post(stream, stream); }
  void expect() const { buffer.expect(1, {t.previous(), t.rank, number_}); }

  Trial& t;
  ncclComm_t comm;
  Buffer buffer;

 private:
  const int number_;
};

/// Sends on one stream, receives on another: each of them has all of it.
void several(Trial& t, int waited) {
  const Ring ring(t, t.comm(), 1);
  const cudaStream_t streams[] = {t.stream(), t.stream()};
  ring.post(streams[0], streams[1]);
  t.sync(streams[waited]);
  ring.expect();
  t.sync(streams[1 - waited]);
}

/// Work on any stream of the group comes before it.
void several_held_up(Trial& t) {
  const Ring ring(t, t.comm(), 1);
  const cudaStream_t streams[] = {t.stream(), t.stream(), t.stream()};
  exchange_all(t, ring.comm, streams[2], 8, 0);
  Gate gate(t, streams[0]);
  ring.post(streams[0], streams[1]);
  CUDA(cudaStreamQuery(streams[1]));
  ring.buffer.expect_untouched(1);
  gate.open();
  t.sync(streams[1]);
  ring.expect();
  t.sync(streams[0]);
}

/// The end of a group waits for nothing.
void asynchronous(Trial& t) {
  const Ring ring(t, t.comm(), 1);
  const cudaStream_t stream = t.stream();
  exchange_all(t, ring.comm, stream, 8, 0);
  Gate gate(t, stream);
  ring.post(stream);
  CUDA(cudaStreamQuery(stream));
  t.world.barrier();  // all have come back
  gate.open();
  t.sync(stream);
  ring.expect();
  CUDA(cudaStreamQuery(stream));
}

/// What is sent is what the stream has written before.
void written_before(Trial& t) {
  const Ring ring(t, t.comm(), 1);
  const Buffer source(t, 1, kBytes);
  source.fill(0, {t.rank, t.next(), 2});
  const cudaStream_t stream = t.stream();
  Gate gate(t, stream);
  CUDA(cudaMemcpyAsync(ring.buffer.at(0), source.at(0), kBytes, cudaMemcpyDeviceToDevice, stream));
  ring.post(stream);
  CUDA(cudaMemcpyAsync(source.at(0), ring.buffer.at(1), kBytes, cudaMemcpyDeviceToDevice, stream));
  CUDA(cudaMemsetAsync(ring.buffer.at(0), 7, 2 * kBytes, stream));
  gate.open();
  t.sync(stream);
  source.expect(0, {t.previous(), t.rank, 2});
}

/// The second exchange is on another stream and waits for the first, which is held up.
void one_order(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t streams[] = {t.stream(), t.stream()};
  exchange_all(t, comm, streams[0], 8, 0);
  const Ring first(t, comm, 1), second(t, comm, 2);
  Gate gate(t, streams[0]);
  first.post(streams[0]);
  second.post(streams[1]);
  CUDA(cudaStreamQuery(streams[1]));
  second.buffer.expect_untouched(1);
  gate.open();
  t.sync(streams[1]);
  first.expect();
  second.expect();
  t.sync(streams[0]);
}

/// As before with collectives between messages.
void one_order_with_collectives(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t streams[] = {t.stream(), t.stream(), t.stream()};
  exchange_all(t, comm, streams[0], 8, 0);
  const Ring first(t, comm, 1), second(t, comm, 2);
  const Buffer value(t, 1, 400);
  value.fill(0, {t.rank, 0, 3});
  Gate gate(t, streams[0]);
  first.post(streams[0]);
  NCCL(ncclBroadcast(value.at(0), value.at(0), 400, ncclInt8, 0, comm, streams[1]));
  second.post(streams[2]);
  CUDA(cudaStreamQuery(streams[1]));
  CUDA(cudaStreamQuery(streams[2]));
  gate.open();
  for (const cudaStream_t stream : streams) t.sync(stream);
  first.expect();
  second.expect();
  value.expect(0, {0, 0, 3});
}

void default_stream(Trial& t, cudaStream_t stream) {
  const ncclComm_t comm = t.comm();
  const Ring first(t, comm, 1), second(t, comm, 2);
  first.post(stream);
  t.sync(stream);
  first.expect();
  // With another one in a group.
  const cudaStream_t other = t.stream();
  second.post(stream, other);
  t.sync(other);
  second.expect();
  t.sync(stream);
}

/// A blocking stream waits for the legacy default stream and the other way round.
void legacy_order(Trial& t) {
  const ncclComm_t comm = t.comm();
  cudaStream_t blocking = nullptr;
  CUDA(cudaStreamCreate(&blocking));
  const Ring ring(t, comm, 1);
  const Buffer copy(t, 1, kBytes);
  ring.post(blocking);
  CUDA(cudaMemcpyAsync(copy.at(0), ring.buffer.at(1), kBytes, cudaMemcpyDeviceToDevice, nullptr));
  t.sync(nullptr);
  copy.expect(0, {t.previous(), t.rank, 1});
  const Ring second(t, comm, 2);
  second.post(nullptr);
  CUDA(
      cudaMemcpyAsync(copy.at(0), second.buffer.at(1), kBytes, cudaMemcpyDeviceToDevice, blocking));
  t.sync(blocking);
  copy.expect(0, {t.previous(), t.rank, 2});
  CUDA(cudaStreamDestroy(blocking));
}

/// Events tell another stream when messages have arrived.
void events(Trial& t) {
  const Ring ring(t, t.comm(), 1);
  const cudaStream_t streams[] = {t.stream(), t.stream()};
  const Buffer copy(t, 1, kBytes);
  cudaEvent_t event = nullptr;
  CUDA(cudaEventCreate(&event));
  ring.post(streams[0]);
  CUDA(cudaEventRecord(event, streams[0]));
  CUDA(cudaStreamWaitEvent(streams[1], event, 0));
  CUDA(
      cudaMemcpyAsync(copy.at(0), ring.buffer.at(1), kBytes, cudaMemcpyDeviceToDevice, streams[1]));
  CUDA(cudaEventSynchronize(event));
  ring.expect();
  t.sync(streams[1]);
  copy.expect(0, {t.previous(), t.rank, 1});
  CUDA(cudaEventDestroy(event));
}

void device_synchronize(Trial& t) {
  const Ring ring(t, t.comm(), 1);
  ring.post(t.stream());
  CUDA(cudaDeviceSynchronize());
  ring.expect();
}

/// Two communicators on streams of their own go on apart.
void two_communicators(Trial& t) {
  const ncclComm_t first = t.comm(), second = t.comm();
  const cudaStream_t streams[] = {t.stream(), t.stream()};
  exchange_all(t, first, streams[0], 8, 0);
  exchange_all(t, second, streams[1], 8, 0);
  const Ring held(t, first, 1), going(t, second, 2);
  Gate gate(t, streams[0]);
  held.post(streams[0]);
  going.post(streams[1]);
  t.sync(streams[1]);
  going.expect();
  CUDA(cudaStreamQuery(streams[0]));
  t.world.barrier();
  gate.open();
  t.sync(streams[0]);
  held.expect();
}

/// A zero-byte receive is not over before its send.
void zero_synchronises(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  exchange_all(t, comm, stream, 8, 0);
  if (t.rank == 0) {
    NCCL(ncclRecv(nullptr, 0, ncclInt8, t.ranks - 1, comm, stream));
    CUDA(cudaStreamQuery(stream));
  }
  t.world.barrier();
  if (t.rank == t.ranks - 1) NCCL(ncclSend(nullptr, 0, ncclInt8, 0, comm, stream));
  t.sync(stream);
}

}  // namespace

Cases stream_cases() {
  constexpr unsigned kBoth = kProcesses | kThreads;
  constexpr unsigned kMany = kBoth | kOneNode;
  return {
      {"streams first waited", {"5.5/several-streams"}, kMany, [](Trial& t) { several(t, 0); }},
      {"streams second waited", {"5.5/several-streams"}, kMany, [](Trial& t) { several(t, 1); }},
      {"streams held up", {"5.5/several-streams"}, kMany, several_held_up},
      {"asynchronous", {"5.5/after-end"}, kMany, asynchronous},
      {"written before", {"5.5/after-end"}, kMany, written_before},
      {"one order", {"5.5/one-order"}, kMany, one_order},
      {"one order collectives", {"5.5/one-order"}, kMany, one_order_with_collectives},
      {"null stream", {"5.5/default-streams"}, kMany, [](Trial& t) { default_stream(t, nullptr); }},
      {"legacy-stream",
       {"5.5/default-streams"},
       kMany,
       [](Trial& t) { default_stream(t, cudaStreamLegacy); }},
      {"per-thread-stream",
       {"5.5/default-streams"},
       kMany,
       [](Trial& t) { default_stream(t, cudaStreamPerThread); }},
      {"legacy order", {"5.5/default-streams"}, kMany, legacy_order},
      {"events", {"5.5/after-end"}, kMany, events},
      {"device synchronize", {"5.5/after-end"}, kMany, device_synchronize},
      {"two communicators apart", {"5.5/one-order"}, kMany, two_communicators},
      {"zero synchronises", {"5.3/zero-messages"}, kMany, zero_synchronises},
  };
}

}  // namespace conformance
