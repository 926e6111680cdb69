// SPDX-License-Identifier: Apache-2.0
//
// Non-blocking communicators. Whether a call has done its work when it returns is a matter of
// chance, so these cases log that it was accepted, and how it ended.
#include <chrono>
#include <thread>

#include "cases.h"

namespace conformance {
namespace {

constexpr size_t kBytes = 1000;

ncclConfig_t nonblocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclComm_t make(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclConfig_t config = nonblocking();
  ncclComm_t comm = nullptr;
  ACCEPT(ncclCommInitRankConfig(&comm, t.ranks, ids.at(0), t.rank, &config));
  t.settle(comm);
  return comm;
}

/// Ends it as programs do.
void end(Trial& t, ncclComm_t comm) {
  ACCEPT(ncclCommFinalize(comm));
  t.settle(comm);
  ACCEPT(ncclCommDestroy(comm));
}

void ring(Trial& t, ncclComm_t comm, cudaStream_t stream, int number) {
  const Buffer buffer(t, 2, kBytes);
  buffer.fill(0, {t.rank, t.next(), number});
  NCCL(ncclGroupStart());
  ACCEPT(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  ACCEPT(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, stream));
  ACCEPT(ncclGroupEnd());
  t.settle(comm);
  t.sync(stream);
  buffer.expect(1, {t.previous(), t.rank, number});
}

void by_config(Trial& t) {
  const ncclComm_t comm = make(t);
  const cudaStream_t stream = t.stream();
  for (int number = 0; number < 3; ++number) ring(t, comm, stream, number);
  end(t, comm);
}

void by_environment(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclComm_t comm = nullptr;
  ACCEPT(ncclCommInitRank(&comm, t.ranks, ids.at(0), t.rank));
  t.settle(comm);
  ring(t, comm, t.stream(), 1);
  end(t, comm);
}

void by_inheritance(Trial& t) {
  const ncclComm_t parent = make(t);
  ncclComm_t child = nullptr;
  ACCEPT(ncclCommSplit(parent, 0, t.rank, &child, nullptr));
  t.settle(parent);
  CHECK(child != nullptr);
  t.settle(child);
  ring(t, child, t.stream(), 1);
  end(t, child);
  end(t, parent);
}

/// A blocking child of a non-blocking parent.
void blocking_child(Trial& t) {
  const ncclComm_t parent = make(t);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclComm_t child = nullptr;
  ACCEPT(ncclCommSplit(parent, 0, t.rank, &child, &config));
  t.settle(parent);
  CHECK(child != nullptr);
  ring(t, child, t.stream(), 1);
  end(t, child);
  end(t, parent);
}

/// Waits until nothing is in progress, without logging what came of it.
void settle_quietly(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) == ncclSuccess) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // programs can only ask
  }
}

/// Rank 0 asks for a communicator long before the others: the call comes back at once, and what is
/// in progress is refused. What a refusal leaves behind there is a matter of chance.
void in_progress(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclConfig_t config = nonblocking();
  ncclComm_t comm = nullptr;
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 1, kBytes);
  if (t.rank == 0) {
    NCCL(ncclCommInitRankConfig(&comm, t.ranks, ids.at(0), t.rank, &config));
    ncclResult_t state = ncclSuccess;
    NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInProgress);
    NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, 1, comm, stream));
    NCCL(ncclBroadcast(buffer.at(0), buffer.at(0), 1, ncclInt8, 0, comm, stream));
  }
  t.world.barrier();
  if (t.rank != 0) {
    ACCEPT(ncclCommInitRankConfig(&comm, t.ranks, ids.at(0), t.rank, &config));
    t.settle(comm);
  }
  settle_quietly(comm);
  t.world.barrier();
  ACCEPT(ncclCommAbort(comm));
  ring(t, t.comm(), stream, 1);
}

/// Aborted while the others have not come yet.
void abort_in_progress(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclConfig_t config = nonblocking();
  if (t.rank == 0) {
    ncclComm_t comm = nullptr;
    NCCL(ncclCommInitRankConfig(&comm, t.ranks, ids.at(0), t.rank, &config));
    ACCEPT(ncclCommAbort(comm));
  }
  t.world.barrier();
  ring(t, t.comm(), t.stream(), 1);
}

void several_in_group(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(2);
  ncclConfig_t config = nonblocking();
  ncclComm_t comms[2] = {};
  NCCL(ncclGroupStart());
  for (size_t i = 0; i < 2; ++i) {
    ACCEPT(ncclCommInitRankConfig(&comms[i], t.ranks, ids.at(i), t.rank, &config));
  }
  ACCEPT(ncclGroupEnd());
  for (const ncclComm_t comm : comms) t.settle(comm);
  const cudaStream_t stream = t.stream();
  for (const ncclComm_t comm : comms) ring(t, comm, stream, 1);
  for (const ncclComm_t comm : comms) end(t, comm);
}

/// A blocking and a non-blocking communicator may have messages in one group.
void mixed_traffic(Trial& t) {
  const ncclComm_t blocking = t.comm(), other = make(t);
  t.forget(blocking);
  const cudaStream_t stream = t.stream();
  ring(t, blocking, stream, 1);
  ring(t, other, stream, 2);
  const Buffer a(t, 2, kBytes), b(t, 2, kBytes);
  a.fill(0, {t.rank, t.next(), 3});
  b.fill(0, {t.rank, t.next(), 4});
  NCCL(ncclGroupStart());
  for (const auto& [comm, buffer] : {std::pair{blocking, &a}, std::pair{other, &b}}) {
    ACCEPT(ncclSend(buffer->at(0), kBytes, ncclInt8, t.next(), comm, stream));
    ACCEPT(ncclRecv(buffer->at(1), kBytes, ncclInt8, t.previous(), comm, stream));
  }
  ACCEPT(ncclGroupEnd());
  t.settle(blocking);
  t.settle(other);
  t.sync(stream);
  a.expect(1, {t.previous(), t.rank, 3});
  b.expect(1, {t.previous(), t.rank, 4});
  end(t, other);
  end(t, blocking);
}

/// Collectives and messages of both in one group, of which only the non-blocking one tells the end.
void mixed_order(Trial& t) {
  const ncclComm_t blocking = t.comm(), other = make(t);
  const cudaStream_t stream = t.stream(), another = t.stream();
  const Buffer a(t, 2, kBytes), b(t, 1, kBytes), c(t, 1, kBytes);
  for (int number = 1; number < 9; number += 3) {
    a.fill(0, {t.rank, t.next(), number});
    b.fill(0, {t.rank, 0, number + 1});
    c.fill(0, {t.rank, 0, number + 2});
    NCCL(ncclGroupStart());
    ACCEPT(ncclBroadcast(b.at(0), b.at(0), kBytes, ncclInt8, 1, blocking, stream));
    ACCEPT(ncclSend(a.at(0), kBytes, ncclInt8, t.next(), blocking, stream));
    ACCEPT(ncclRecv(a.at(1), kBytes, ncclInt8, t.previous(), blocking, stream));
    ACCEPT(ncclBroadcast(c.at(0), c.at(0), kBytes, ncclInt8, 0, other, another));
    ACCEPT(ncclGroupEnd());
    t.settle(other);
    t.sync(stream);
    t.sync(another);
    a.expect(1, {t.previous(), t.rank, number});
    b.expect(0, {1, 0, number + 1});
    c.expect(0, {0, 0, number + 2});
  }
  end(t, other);
}

/// But they may not be made in one.
void mixed_jobs(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(2);
  ncclConfig_t config = nonblocking();
  ncclComm_t comms[2] = {};
  NCCL(ncclGroupStart());
  ACCEPT(ncclCommInitRank(&comms[0], t.ranks, ids.at(0), t.rank));
  ACCEPT(ncclCommInitRankConfig(&comms[1], t.ranks, ids.at(1), t.rank, &config));
  NCCL(ncclGroupEnd());
  ring(t, t.comm(), t.stream(), 1);
}

void collectives(Trial& t) {
  const ncclComm_t comm = make(t);
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 1, kBytes);
  buffer.fill(0, {t.rank, 0, 1});
  ACCEPT(ncclBroadcast(buffer.at(0), buffer.at(0), kBytes, ncclInt8, 1, comm, stream));
  t.settle(comm);
  ring(t, comm, stream, 2);
  t.sync(stream);
  buffer.expect(0, {1, 0, 1});
  end(t, comm);
}

/// Errors in arguments are told at once, and a non-blocking communicator keeps them.
void refused(Trial& t) {
  const ncclComm_t comm = make(t);
  const cudaStream_t stream = t.stream();
  ring(t, comm, stream, 1);
  t.world.barrier();
  const Buffer buffer(t, 1, kBytes);
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.ranks, comm, stream));
  t.settle(comm);
  NCCL(ncclRecv(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  NCCL(ncclGroupStart());
  NCCL(ncclRecv(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  NCCL(ncclGroupEnd());
  t.settle(comm);
  t.sync(stream);
  ACCEPT(ncclCommAbort(comm));
  ring(t, t.comm(), stream, 2);
}

/// A receive that nobody sends.
void abort_waiting(Trial& t) {
  const ncclComm_t comm = make(t);
  const cudaStream_t stream = t.stream();
  ring(t, comm, stream, 1);
  const Buffer buffer(t, 1, kBytes);
  ACCEPT(ncclRecv(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  t.settle(comm);
  CUDA(cudaStreamQuery(stream));
  t.world.barrier();  // an abort is an error at others
  ACCEPT(ncclCommAbort(comm));
  t.sync(stream);
  ring(t, t.comm(), stream, 2);
}

}  // namespace

Cases nonblocking_cases() {
  constexpr unsigned kMany = kProcesses | kThreads | kOneNode;
  constexpr int kSince = 21403;
  Cases cases = {
      {"non-blocking by config",
       {"5.8/ways", "5.8/states", "5.8/work"},
       kMany | kVersions,
       by_config,
       kSince},
      {"non-blocking by variable", {"5.8/ways"}, kNonblocking, by_environment, kSince},
      {"non-blocking by inheritance", {"5.8/ways"}, kMany, by_inheritance, 21801},
      {"blocking child", {"5.8/ways"}, kMany, blocking_child, 21801},
      {"in progress", {"5.8/in-progress", "5.7/in-progress"}, kMany, in_progress, kSince},
      {"abort in progress", {"5.8/states", "5.9/abort"}, kMany, abort_in_progress, kSince},
      {"several non-blocking in a group", {"5.8/states"}, kMany, several_in_group, kSince},
      {"mixed traffic", {"5.1/mixed-traffic"}, kMany, mixed_traffic, kSince},
      {"mixed group", {"5.1/mixed-traffic"}, kMany, mixed_order, kSince},
      {"mixed jobs", {"5.1/mixed-jobs"}, kMany, mixed_jobs, kSince},
      {"non-blocking collectives", {"5.8/work"}, kMany, collectives, kSince},
      {"non-blocking refused", {"5.8/errors"}, kMany, refused, kSince},
      {"non-blocking abort of a waiting stream",
       {"5.8/errors", "5.9/abort"},
       kMany,
       abort_waiting,
       kSince,
       kUncounted},
  };
  // Their ends go on behind the caller, and so does the counting.
  for (Case& one : cases) one.traits = kLate;
  return cases;
}

}  // namespace conformance
