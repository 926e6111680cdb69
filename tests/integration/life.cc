// SPDX-License-Identifier: Apache-2.0
//
// Scenarios about making, breaking, idling and ending communicators.
#include <sys/resource.h>
#include <time.h>

#include <cstdio>
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

}  // namespace

const std::vector<Scenario> kLife = {
    {"creations", creations}, {"creation_while_waiting", creation_while_waiting},
    {"mismatch", mismatch},   {"abort", abort_from_thread},
    {"idle", idle},           {"ends", ends},
};

}  // namespace integration
