// SPDX-License-Identifier: Apache-2.0
//
// Scenarios about making, breaking, idling and ending communicators.
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "job.h"

namespace integration {
namespace {

constexpr size_t kCount = 5000;

/// Even ranks make two communicators in one group, odd ranks one after the other.
void creations(Job& job) {
  ncclComm_t comms[2] = {};
  if (job.rank % 2 == 0) REQUIRE(ncclGroupStart());
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE(ncclCommInitRank(&comms[i], job.ranks, job.ids[i], job.rank));
  }
  if (job.rank % 2 == 0) REQUIRE(ncclGroupEnd());
  const cudaStream_t stream = job.stream();
  for (int i = 0; i < 2; ++i) exchange_all(comms[i], stream, kCount, i);
  for (const ncclComm_t comm : comms) REQUIRE(ncclCommDestroy(comm));
}

/// A second communicator is made while sends on the first wait for their receives.
void creation_while_waiting(Job& job) {
  const ncclComm_t first = job.create(0);
  const cudaStream_t stream = job.stream();
  constexpr size_t kMuch = 4 << 20;  // more than slots can hold
  const Buffer buffer(kMuch);
  const int last = job.ranks - 1;
  if (job.rank == 0) {
    buffer.set(0, kMuch, 0, last, 0);
    REQUIRE(ncclSend(buffer.data(), kMuch, ncclInt32, last, first, stream));
  }
  const ncclComm_t second = job.create(1);
  exchange_all(second, job.stream(), kCount, 1);
  if (job.rank == last) {
    REQUIRE(ncclRecv(buffer.data(), kMuch, ncclInt32, 0, first, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    buffer.expect(0, kMuch, 0, last, 0);
  }
  REQUIRE(cudaStreamSynchronize(stream));
  REQUIRE(ncclCommDestroy(second));
  REQUIRE(ncclCommDestroy(first));
}

/// Rank 0 sends fewer bytes than the last rank expects, which must learn of it.
void mismatch(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  const ncclComm_t other = job.create(1);
  exchange_all(comm, stream, kCount, 1);
  const Buffer buffer(kCount);
  const int last = job.ranks - 1;
  if (job.rank == 0) {
    REQUIRE(ncclSend(buffer.data(), 1000, ncclChar, last, comm, stream));
  } else if (job.rank == last) {
    REQUIRE(ncclRecv(buffer.data(), 2000, ncclChar, 0, comm, stream));
    const ncclResult_t state = wait_for_error(comm);
    std::fprintf(stderr, "mismatch: %d: %s\n", static_cast<int>(state), ncclGetLastError(comm));
    const std::string text = ncclGetLastError(comm);
    const std::string receiver = "rank " + std::to_string(last);
    for (const char* word : {"1000", "2000", "rank 0", receiver.c_str()}) {
      if (text.find(word) == std::string::npos)
        fail(std::string("the error does not name ") + word);
    }
    REQUIRE(ncclSend(buffer.data(), 1, ncclChar, 0, comm, stream) == state);
  }
  // Nobody gives up before the receiver knows; other communicators go on.
  exchange_all(other, job.stream(), kCount, 2);
  REQUIRE(ncclCommAbort(comm));
  REQUIRE(ncclCommDestroy(other));
}

/// A receive that nobody sends: the waiting thread is released by an abort from another.
void abort_from_thread(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  const Buffer buffer(kCount);
  const int peer = (job.rank + 1) % job.ranks;
  REQUIRE(ncclRecv(buffer.data(), kCount, ncclInt32, peer, comm, stream));
  REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
  std::thread watchdog([comm] { REQUIRE(ncclCommAbort(comm)); });
  REQUIRE(cudaStreamSynchronize(stream));
  watchdog.join();
  // The process is fit for another communicator.
  const ncclComm_t next = job.create(1);
  exchange_all(next, stream, kCount, 2);
  REQUIRE(ncclCommDestroy(next));
}

double cpu_seconds() {
  rusage usage{};
  REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// An open communicator that nobody uses costs less than 2 % of a core.
void idle(Job& job) {
  const ncclComm_t comm = job.create(0);
  exchange_all(comm, job.stream(), kCount, 1);
  constexpr int kSeconds = 5;
  const double before = cpu_seconds();
  timespec window = {kSeconds, 0};
  while (nanosleep(&window, &window) != 0) {
  }
  const double used = cpu_seconds() - before;
  std::fprintf(stderr, "idle: rank %d used %.2f %% of a core\n", job.rank, 100 * used / kSeconds);
  REQUIRE(used < 0.02 * kSeconds);
  exchange_all(comm, job.stream(), kCount, 2);
  REQUIRE(ncclCommDestroy(comm));
}

/// All but rank 1 send to each other, more than slots hold.
void exchange_without_rank_1(Job& job, ncclComm_t comm, cudaStream_t stream) {
  constexpr size_t kMuch = 300000;
  const auto ranks = static_cast<size_t>(job.ranks);
  const Buffer from(kMuch * ranks), to(kMuch * ranks);
  REQUIRE(ncclGroupStart());
  for (int peer = 0; peer < job.ranks; ++peer) {
    if (peer == 1) continue;
    const size_t offset = static_cast<size_t>(peer) * kMuch;
    from.set(offset, kMuch, job.rank, peer, 7);
    REQUIRE(ncclSend(from.data() + offset, kMuch, ncclInt32, peer, comm, stream));
    REQUIRE(ncclRecv(to.data() + offset, kMuch, ncclInt32, peer, comm, stream));
  }
  REQUIRE(ncclGroupEnd());
  REQUIRE(cudaStreamSynchronize(stream));
  for (int peer = 0; peer < job.ranks; ++peer) {
    if (peer != 1) to.expect(static_cast<size_t>(peer) * kMuch, kMuch, peer, job.rank, 7);
  }
}

/// Rank 1 cleans up by abort, as some frameworks do; messages between the others that go through
/// its memory still arrive.
void abort_early(Job& job) {
  const ncclComm_t comm = job.create(0), other = job.create(1);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  if (job.rank == 1) REQUIRE(ncclCommAbort(comm));
  exchange_all(other, stream, kCount, 2);
  if (job.rank != 1) {
    exchange_without_rank_1(job, comm, stream);
    REQUIRE(ncclCommDestroy(comm));
  }
  REQUIRE(ncclCommDestroy(other));
}

/// As before, but rank 1 returns from main() without ending its communicator.
void exit_early(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  if (job.rank == 1) return;
  exchange_without_rank_1(job, comm, stream);
  REQUIRE(ncclCommDestroy(comm));
}

/// Aborts whose exchanges stand in a stream behind other work: once they have left it, what they
/// held is free, so that there is room for the next communicator.
void aborts(Job& job) {
  constexpr int kRounds = 12;  // more than there is memory for
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  const Buffer& buffer = *new Buffer(kCount);  // freeing it would wait for the device
  for (int round = 0; round < kRounds; ++round) {
    ncclComm_t child = nullptr;
    REQUIRE(ncclCommSplit(comm, 0, job.rank, &child, nullptr));
    std::promise<void> work;
    const auto wait = [](void* promise) {
      static_cast<std::promise<void>*>(promise)->get_future().wait();
    };
    REQUIRE(cudaLaunchHostFunc(stream, wait, &work));
    const int peer = (job.rank + 1) % job.ranks;
    REQUIRE(ncclRecv(buffer.data(), kCount, ncclInt32, peer, child, stream));
    REQUIRE(ncclCommAbort(child));
    work.set_value();
    REQUIRE(cudaStreamSynchronize(stream));
  }
  ncclComm_t last = nullptr;
  REQUIRE(ncclCommSplit(comm, 0, job.rank, &last, nullptr));
  exchange_all(last, stream, kCount, 1);
  REQUIRE(ncclCommDestroy(last));
  REQUIRE(ncclCommDestroy(comm));
}

/// Ends in groups, in different orders, finalized first or not.
void ends(Job& job) {
  ncclComm_t comms[3] = {job.create(0), job.create(1), job.create(2)};
  const cudaStream_t stream = job.stream();
  for (int i = 0; i < 3; ++i) exchange_all(comms[i], stream, kCount, i);
  REQUIRE(ncclCommFinalize(comms[2]));
  REQUIRE(ncclCommDestroy(comms[2]));
  REQUIRE(ncclGroupStart());
  for (int i = 0; i < 2; ++i) REQUIRE(ncclCommDestroy(comms[(i + job.rank) % 2]));
  REQUIRE(ncclGroupEnd());
}

/// Keeps a used communicator open until somebody opens the pipe HOLD for writing.
void hold(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  std::fprintf(stderr, "holding: rank %d is process %d\n", job.rank, getpid());
  const char* const pipe = std::getenv("HOLD");
  REQUIRE(pipe != nullptr);
  const int end = open(pipe, O_RDONLY);
  REQUIRE(end >= 0);
  exchange_all(comm, stream, kCount, 2);
  REQUIRE(ncclCommDestroy(comm));
  close(end);
}

/// Exchanges until the network fails. Every rank must learn of it, and be able to go on.
void outage(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  std::fprintf(stderr, "exchanging: rank %d\n", job.rank);
  constexpr size_t kMuch = 1 << 18;
  const size_t ranks = static_cast<size_t>(job.ranks);
  const Buffer from(kMuch * ranks), to(kMuch * ranks);
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) {
    state = ncclAlltoAll(from.data(), to.data(), kMuch, ncclInt32, comm, stream);
    while (state == ncclSuccess && cudaStreamQuery(stream) == cudaErrorNotReady) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // programs can only ask
      REQUIRE(ncclCommGetAsyncError(comm, &state));
    }
  }
  std::fprintf(stderr, "outage: rank %d: %s: %s\n", job.rank, ncclGetErrorString(state),
               ncclGetLastError(comm));
  REQUIRE(ncclCommAbort(comm));
  REQUIRE(cudaStreamSynchronize(stream));
}

}  // namespace

const std::vector<Scenario> kLife = {
    {"creations", creations},
    {"creation_while_waiting", creation_while_waiting},
    {"mismatch", mismatch},
    {"abort", abort_from_thread},
    {"idle", idle},
    {"ends", ends},
    {"abort_early", abort_early},
    {"exit_early", exit_early},
    {"aborts", aborts},
    {"hold", hold},
    {"outage", outage},
};

}  // namespace integration
