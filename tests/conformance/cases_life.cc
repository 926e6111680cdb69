// SPDX-License-Identifier: Apache-2.0
//
// Communicators: how they are made from ids, and how they end.
#include <thread>

#include "cases.h"

namespace conformance {
namespace {

constexpr size_t kBytes = 1000;

/// Ring among the ranks of any communicator.
void ring(Trial& t, ncclComm_t comm, cudaStream_t stream, int number) {
  exchange_all(t, comm, stream, kBytes, number);
}

void one_rank(Trial& t) {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  NCCL(ncclCommInitRank(&comm, 1, id, 0));
  t.watch(comm);
  ring(t, comm, t.stream(), 1);
}

void several_ids(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(3);
  ncclComm_t comms[3] = {};
  // Grouped at even ranks, one after the other at odd ones.
  if (t.rank % 2 == 0) NCCL(ncclGroupStart());
  for (size_t i = 0; i < 3; ++i) {
    NCCL(ncclCommInitRank(&comms[i], t.ranks, ids.at(i), t.rank));
  }
  if (t.rank % 2 == 0) NCCL(ncclGroupEnd());
  const cudaStream_t stream = t.stream();
  for (int i = 0; i < 3; ++i) {
    t.watch(comms[i]);
    ring(t, comms[i], stream, i);
  }
}

/// Ranks are given in another order than the world's.
void reversed(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclComm_t comm = nullptr;
  NCCL(ncclCommInitRank(&comm, t.ranks, ids.at(0), t.ranks - 1 - t.rank));
  t.watch(comm);
  ring(t, comm, t.stream(), 1);
}

/// All devices of the process, by one thread.
void all_devices(Trial& t) {
  int devices = 0;
  CUDA(cudaGetDeviceCount(&devices));
  std::vector<ncclComm_t> comms(static_cast<size_t>(devices));
  const auto one = t.world.gather({});
  if (t.rank != 0) return;
  NCCL(ncclCommInitAll(comms.data(), devices, nullptr));
  for (const ncclComm_t comm : comms) t.watch(comm);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < devices; ++i) {
    CUDA(cudaSetDevice(i));
    buffers.push_back(std::make_unique<Buffer>(t, 2, kBytes));
    buffers.back()->fill(0, {i, (i + 1) % devices, 1});
    streams.push_back(t.stream());
  }
  NCCL(ncclGroupStart());
  for (int i = 0; i < devices; ++i) {
    const auto at = static_cast<size_t>(i);
    const Buffer& buffer = *buffers[at];
    NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, (i + 1) % devices, comms[at], streams[at]));
    NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, (i + devices - 1) % devices, comms[at],
                  streams[at]));
  }
  NCCL(ncclGroupEnd());
  for (int i = 0; i < devices; ++i) {
    t.sync(streams[static_cast<size_t>(i)]);
    buffers[static_cast<size_t>(i)]->expect(1, {(i + devices - 1) % devices, i, 1});
  }
  NCCL(ncclGroupStart());
  for (const ncclComm_t comm : comms) {
    t.forget(comm);
    NCCL(ncclCommDestroy(comm));
  }
  NCCL(ncclGroupEnd());
  CUDA(cudaSetDevice(t.device));
}

void devices_refused(Trial& t) {
  ncclComm_t comms[2] = {};
  const int twice[] = {0, 0}, beyond[] = {0, 99};
  NCCL(ncclCommInitAll(comms, 2, twice));
  NCCL(ncclCommInitAll(comms, 2, beyond));
  NCCL(ncclCommInitAll(nullptr, 1, nullptr));
  CHECK(comms[0] == nullptr);
  exchange_ring(t, t.comm(), t.stream(), kBytes, 1);
}

void scalable(Trial& t, size_t number) {
  if (LACKS(ncclCommInitRankScalable)) return;
  std::vector<ncclUniqueId> ids = t.world.unique_ids(number);
  ncclComm_t comm = nullptr;
  NCCL(ncclCommInitRankScalable(&comm, t.ranks, t.rank, static_cast<int>(number), ids.data(),
                                nullptr));
  t.watch(comm);
  ring(t, comm, t.stream(), 1);
}

void finalize(Trial& t) {
  if (LACKS(ncclCommFinalize)) return;
  NCCL(ncclCommFinalize(nullptr));
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  buffer.fill(0, {t.rank, t.next(), 1});
  NCCL(ncclGroupStart());
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  NCCL(ncclCommFinalize(comm));
  NCCL(ncclCommFinalize(comm));
  t.sync(stream);
  buffer.expect(1, {t.previous(), t.rank, 1});
}

/// Work is still under way when the communicator is destroyed.
void destroy_at_once(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, 300'000);
  buffer.fill(0, {t.rank, t.next(), 1});
  NCCL(ncclGroupStart());
  NCCL(ncclSend(buffer.at(0), 300'000, ncclInt8, t.next(), comm, stream));
  NCCL(ncclRecv(buffer.at(1), 300'000, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.destroy(comm);
  t.sync(stream);
  buffer.expect(1, {t.previous(), t.rank, 1});
}

void null_ends(Trial& t) {
  NCCL(ncclCommDestroy(nullptr));
  NCCL(ncclCommAbort(nullptr));
  exchange_ring(t, t.comm(), t.stream(), kBytes, 1);
}

void unused(Trial& t) {
  for (int i = 0; i < 3; ++i) t.destroy(t.comm());
}

/// Handles may have the values that others had before.
void reuse(Trial& t) {
  const cudaStream_t stream = t.stream();
  for (int i = 0; i < 6; ++i) {
    const ncclComm_t comm = t.comm();
    exchange_ring(t, comm, stream, kBytes, i);
    t.world.barrier();  // all have what they were sent
    i % 3 == 2 ? t.abort(comm) : t.destroy(comm);
    t.world.barrier();
  }
}

/// Communicators end in an order of each rank's own, in one group.
void ends_in_group(Trial& t) {
  const ncclComm_t comms[] = {t.comm(), t.comm()};
  const cudaStream_t stream = t.stream();
  for (const ncclComm_t comm : comms) {
    exchange_ring(t, comm, stream, kBytes, 1);
    t.forget(comm);
  }
  NCCL(ncclGroupStart());
  for (int i = 0; i < 2; ++i) NCCL(ncclCommDestroy(comms[(i + t.rank) % 2]));
  NCCL(ncclGroupEnd());
}

/// A receive that nobody sends is released, by the same thread or another.
void abort_waiting(Trial& t, bool other_thread) {
  const ncclComm_t comm = t.comm(), next = t.comm();
  const cudaStream_t stream = t.stream();
  exchange_all(t, comm, stream, 8, 0);
  const Buffer buffer(t, 1, kBytes);
  NCCL(ncclRecv(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  CUDA(cudaStreamQuery(stream));
  t.world.barrier();  // an abort is an error at others
  if (other_thread) {
    t.forget(comm);
    std::thread watchdog([comm] { ncclCommAbort(comm); });
    t.sync(stream);
    watchdog.join();
  } else {
    t.abort(comm);
    t.sync(stream);
  }
  buffer.expect_untouched(0);
  exchange_ring(t, next, stream, kBytes, 1);
}

void abort_idle(Trial& t) {
  const ncclComm_t comm = t.comm();
  exchange_ring(t, comm, t.stream(), kBytes, 1);
  t.world.barrier();
  t.abort(comm);
  exchange_ring(t, t.comm(), t.stream(), kBytes, 2);
}

}  // namespace

Cases life_cases() {
  constexpr unsigned kMany = kProcesses | kThreads | kThreeNodes | kOneNode;
  return {
      {"one rank", {"5.9/init-rank"}, kMany, one_rank, 21200, kShared},
      {"several communicators", {"5.9/init-rank"}, kMany | kVersions, several_ids},
      {"ranks reversed", {"5.9/init-rank"}, kMany, reversed},
      {"all devices",
       {"5.9/init-all", "5.10/one-process"},
       kProcesses | kThreads,
       all_devices,
       21200,
       kShared},
      {"devices that are refused", {"5.9/init-all"}, kProcesses | kThreads, devices_refused},
      {"scalable, one id", {"5.9/scalable"}, kMany, [](Trial& t) { scalable(t, 1); }, 22304},
      {"scalable, three ids", {"5.9/scalable"}, kMany, [](Trial& t) { scalable(t, 3); }, 22304},
      {"finalize", {"5.9/finalize"}, kMany, finalize, 21403},
      {"destroy at once", {"5.9/destroy"}, kMany | kVersions, destroy_at_once},
      {"null ends", {"5.9/destroy", "5.9/abort"}, kMany | kVersions, null_ends},
      {"unused", {"5.9/destroy"}, kMany, unused},
      {"reuse", {"5.9/reuse"}, kMany, reuse},
      {"ends in a group", {"5.9/destroy"}, kMany, ends_in_group},
      {"abort of a waiting stream",
       {"5.9/abort", "5.9/in-flight"},
       kMany,
       [](Trial& t) { abort_waiting(t, false); },
       21200,
       kUncounted},
      {"abort by another thread",
       {"5.9/abort", "5.9/in-flight"},
       kMany,
       [](Trial& t) { abort_waiting(t, true); },
       21200,
       kUncounted},
      {"abort", {"5.9/abort"}, kMany, abort_idle},
  };
}

}  // namespace conformance
