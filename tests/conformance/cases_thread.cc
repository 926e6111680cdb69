// SPDX-License-Identifier: Apache-2.0
//
// Threads, and processes besides; what collectives of nothing do.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "cases.h"

namespace conformance {
namespace {

constexpr size_t kBytes = 1000;

/// Posts and checks a ring without logging, as two threads may not share the log.
bool quiet_ring(Trial& t, ncclComm_t comm, cudaStream_t stream, const Buffer& buffer) {
  cudaSetDevice(t.device);
  bool good = ncclGroupStart() == ncclSuccess;
  good = ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream) == ncclSuccess && good;
  good =
      ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, stream) == ncclSuccess && good;
  good = ncclGroupEnd() == ncclSuccess && good;
  return cudaStreamSynchronize(stream) == cudaSuccess && good;
}

/// Each communicator has a thread of its own, each on a stream of its own.
void thread_per_communicator(Trial& t) {
  constexpr int kThreadsHere = 2;
  ncclComm_t comms[kThreadsHere] = {};
  cudaStream_t streams[kThreadsHere] = {};
  std::vector<std::unique_ptr<Buffer>> buffers;
  bool good[kThreadsHere] = {};
  for (int i = 0; i < kThreadsHere; ++i) {
    comms[i] = t.comm();
    streams[i] = t.stream();
    exchange_all(t, comms[i], streams[i], 8, 0);
    buffers.push_back(std::make_unique<Buffer>(t, 2, kBytes));
    buffers.back()->fill(0, {t.rank, t.next(), i});
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreadsHere; ++i) {
    threads.emplace_back([&, i] {
      good[i] = true;
      for (int round = 0; round < 20 && good[i]; ++round) {
        good[i] = quiet_ring(t, comms[i], streams[i], *buffers[static_cast<size_t>(i)]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreadsHere; ++i) {
    CHECK(good[i]);
    buffers[static_cast<size_t>(i)]->expect(1, {t.previous(), t.rank, i});
  }
}

/// One thread after the other uses, and another ends, a communicator.
void handed_on(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  for (int number = 0; number < 3; ++number) {
    std::thread user([&] {
      CUDA(cudaSetDevice(t.device));
      exchange_ring(t, comm, stream, kBytes, number);
    });
    user.join();
  }
  std::thread ender([&] { t.destroy(comm); });
  ender.join();
}

void made_by_thread(Trial& t) {
  ncclComm_t comm = nullptr;
  std::thread maker([&] {
    CUDA(cudaSetDevice(t.device));
    comm = t.comm();
  });
  maker.join();
  exchange_ring(t, comm, t.stream(), kBytes, 1);
}

void thread_default_stream(Trial& t) {
  const ncclComm_t comm = t.comm();
  exchange_ring(t, comm, cudaStreamPerThread, kBytes, 0);
  std::thread user([&] {
    CUDA(cudaSetDevice(t.device));
    exchange_ring(t, comm, cudaStreamPerThread, kBytes, 1);
  });
  user.join();
  exchange_ring(t, comm, cudaStreamPerThread, kBytes, 2);
}

/// A child of the process that never uses NCCL comes, works and goes.
void forked(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  exchange_ring(t, comm, stream, kBytes, 1);
  const pid_t child = fork();
  if (child == 0) _exit(7);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  t.note("child: %d", WEXITSTATUS(status));
  exchange_ring(t, comm, stream, kBytes, 2);
}

/// Only rank 0 calls collectives of nothing: nobody waits.
void zero_collectives(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  if (t.rank == 0) {
    if (ncclAlltoAll != nullptr) NCCL(ncclAlltoAll(nullptr, nullptr, 0, ncclInt8, comm, stream));
    if (ncclGather != nullptr) NCCL(ncclGather(nullptr, nullptr, 0, ncclInt8, 1, comm, stream));
    if (ncclScatter != nullptr) NCCL(ncclScatter(nullptr, nullptr, 0, ncclInt8, 1, comm, stream));
    NCCL(ncclAllReduce(nullptr, nullptr, 0, ncclInt8, ncclSum, comm, stream));
    NCCL(ncclBroadcast(nullptr, nullptr, 0, ncclInt8, 0, comm, stream));
    NCCL(ncclAllGather(nullptr, nullptr, 0, ncclInt8, comm, stream));
    NCCL(ncclReduceScatter(nullptr, nullptr, 0, ncclInt8, ncclSum, comm, stream));
    NCCL(ncclReduce(nullptr, nullptr, 0, ncclInt8, ncclSum, 0, comm, stream));
  }
  t.sync(stream);
  exchange_ring(t, comm, stream, kBytes, 1);
}

/// Messages of nothing among others, some with null pointers.
void zero_messages(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  exchange_all(t, comm, stream, 0, 1);
  const Buffer buffer(t, 2, kBytes);
  buffer.fill(0, {t.rank, t.next(), 1});
  NCCL(ncclGroupStart());
  for (int i = 0; i < 3; ++i) {
    const size_t bytes = i == 1 ? kBytes : 0;
    NCCL(ncclSend(i == 1 ? buffer.at(0) : nullptr, bytes, ncclInt8, t.next(), comm, stream));
    NCCL(ncclRecv(i == 1 ? buffer.at(1) : nullptr, bytes, ncclInt8, t.previous(), comm, stream));
  }
  NCCL(ncclGroupEnd());
  t.sync(stream);
  buffer.expect(1, {t.previous(), t.rank, 1});
}

/// As from one pointer to the same: there is nothing to carry.
void nothing_to_oneself(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  NCCL(ncclGroupStart());
  NCCL(ncclSend(nullptr, 0, ncclFloat, t.rank, comm, stream));
  NCCL(ncclRecv(nullptr, 0, ncclFloat, t.rank, comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
}

/// Messages and all-to-alls of one pair keep their order.
void one_way(Trial& t) {
  if (LACKS(ncclAlltoAll)) return;
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, 3 * ranks, kBytes), in(t, 3 * ranks, kBytes);
  out.fill_for_all(1);
  const auto messages = [&](int block) {
    for (int peer = 0; peer < t.ranks; ++peer) {
      NCCL(ncclSend(out.at(block + peer), kBytes, ncclInt8, peer, comm, stream));
      NCCL(ncclRecv(in.at(block + peer), kBytes, ncclInt8, peer, comm, stream));
    }
  };
  NCCL(ncclGroupStart());
  messages(0);
  NCCL(ncclAlltoAll(out.at(t.ranks), in.at(t.ranks), kBytes, ncclInt8, comm, stream));
  messages(2 * t.ranks);
  NCCL(ncclGroupEnd());
  t.sync(stream);
  for (int part = 0; part < 3; ++part) {
    for (int peer = 0; peer < t.ranks; ++peer) {
      const auto block = static_cast<size_t>(part * t.ranks + peer);
      in.expect(block, {peer, part * t.ranks + t.rank, 1});
    }
  }
}

}  // namespace

Cases thread_cases() {
  constexpr unsigned kMany = kProcesses | kThreads | kThreeNodes | kOneNode;
  return {
      {"a thread per communicator", {"5.10/threads"}, kMany, thread_per_communicator},
      {"handed on to threads", {"5.10/threads"}, kMany, handed_on},
      {"made by a thread", {"5.10/threads", "5.9/init-rank"}, kMany, made_by_thread},
      {"default streams of threads",
       {"5.5/default-streams", "5.10/threads"},
       kMany,
       thread_default_stream},
      {"forked", {"5.10/fork"}, kMany, forked},
      {"collectives of nothing", {"5.3/zero-collectives"}, kMany | kVersions, zero_collectives},
      {"messages of nothing", {"5.3/zero-messages"}, kMany | kVersions, zero_messages},
      {"nothing to oneself",
       {"5.3/zero-messages", "5.2/self"},
       kMany,
       nothing_to_oneself,
       21200,
       kUncounted},
      {"messages around an all-to-all", {"5.2/one-way"}, kMany, one_way, 22803},
  };
}

}  // namespace conformance
