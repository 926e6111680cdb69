// SPDX-License-Identifier: Apache-2.0
//
// Scenarios about communicators made from others or from several ids, non-blocking ones, and what
// newer releases of NCCL can do with them. Functions are looked up, since not every release has
// them.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "../property/rendezvous.h"
#include "job.h"

namespace integration {
namespace {

constexpr size_t kCount = 3000;
constexpr int kShrinkAbort = 1, kSuspendMemory = 1;

using Grow = ncclResult_t (*)(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*,
                              ncclConfig_t*);
using Shrink = ncclResult_t (*)(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int);
using Scalable = ncclResult_t (*)(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*);
using CommGetUniqueId = ncclResult_t (*)(ncclComm_t, ncclUniqueId*);
using OfComm = ncclResult_t (*)(ncclComm_t);
using OfCommAndFlags = ncclResult_t (*)(ncclComm_t, int);
using Rooted = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                                cudaStream_t);

template <typename Function>
Function look_up(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) fail(std::string(name) + " is not in this NCCL");
  return reinterpret_cast<Function>(found);
}

void scalable(Job& job) {
  ncclComm_t comm = nullptr;
  REQUIRE(look_up<Scalable>("ncclCommInitRankScalable")(
      &comm, job.ranks, job.rank, static_cast<int>(job.ids.size()), job.ids.data(), nullptr));
  exchange_all(comm, job.stream(), kCount, 1);
  REQUIRE(ncclCommDestroy(comm));
}

/// Without rank 0, whose process made the id, and without the last one; the parent goes on.
void shrink(Job& job) {
  const auto call = look_up<Shrink>("ncclCommShrink");
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  const int last = job.ranks - 1;
  for (std::vector<int> list : {std::vector{0}, std::vector{last, 0}, std::vector{0}}) {
    if (std::count(list.begin(), list.end(), job.rank) == 0) {
      ncclComm_t rest = nullptr;
      REQUIRE(call(comm, list.data(), static_cast<int>(list.size()), &rest, nullptr, 0));
      int count = 0;
      REQUIRE(ncclCommCount(rest, &count));
      REQUIRE(count == job.ranks - static_cast<int>(list.size()));
      exchange_all(rest, stream, kCount, 2);
      REQUIRE(ncclCommDestroy(rest));
    } else {
      ncclComm_t none = nullptr;
      REQUIRE(call(comm, list.data(), static_cast<int>(list.size()), &none, nullptr, 0) ==
              ncclInvalidArgument);
    }
  }
  exchange_all(comm, stream, kCount, 3);
  REQUIRE(ncclCommDestroy(comm));
}

/// Rank 1 is lost for the others, which wait for its messages: they go on without it.
void shrink_abort(Job& job) {
  const ncclComm_t comm = job.create(0), other = job.create(1);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  if (job.rank != 1) {
    const Buffer& buffer = *new Buffer(kCount);
    REQUIRE(ncclRecv(buffer.data(), kCount, ncclInt32, 1, comm, stream));
    REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
    int lost[] = {1};
    ncclComm_t rest = nullptr;
    REQUIRE(look_up<Shrink>("ncclCommShrink")(comm, lost, 1, &rest, nullptr, kShrinkAbort));
    REQUIRE(cudaStreamSynchronize(stream));
    exchange_all(rest, stream, kCount, 2);
    REQUIRE(ncclCommDestroy(rest));
  }
  exchange_all(other, job.stream(), kCount, 3);
  REQUIRE(ncclCommAbort(comm));
  REQUIRE(ncclCommDestroy(other));
}

/// The last rank joins what the others have had for a while.
void grow(Job& job) {
  const auto call = look_up<Grow>("ncclCommGrow");
  const int last = job.ranks - 1;
  const cudaStream_t stream = job.stream();
  ncclComm_t comm = nullptr, grown = nullptr;
  std::vector<ncclUniqueId> id(1);
  if (job.rank != last) {
    REQUIRE(ncclCommInitRank(&comm, last, job.ids[0], job.rank));
    exchange_all(comm, stream, kCount, 1);
    if (job.rank == 0) {
      REQUIRE(look_up<CommGetUniqueId>("ncclCommGetUniqueId")(comm, id.data()));
    }
  }
  property::share_between_processes(job.rank, job.ranks, id);
  if (job.rank == last) {
    REQUIRE(call(nullptr, job.ranks, id.data(), last, &grown, nullptr));
  } else {
    REQUIRE(call(comm, job.ranks, job.rank == 0 ? id.data() : nullptr, -1, &grown, nullptr));
    REQUIRE(ncclCommDestroy(comm));
  }
  exchange_all(grown, stream, kCount, 2);
  REQUIRE(ncclCommDestroy(grown));
}

/// Blocks of all ranks to each in turn, and back.
void rooted(Job& job) {
  const auto gather = look_up<Rooted>("ncclGather"), scatter = look_up<Rooted>("ncclScatter");
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  const auto ranks = static_cast<size_t>(job.ranks);
  for (int root = 0; root < job.ranks; ++root) {
    const Buffer mine(kCount), all(kCount * ranks), back(kCount);
    mine.set(0, kCount, job.rank, root, root);
    REQUIRE(gather(mine.data(), all.data(), kCount, ncclInt32, root, comm, stream));
    REQUIRE(scatter(all.data(), back.data(), kCount, ncclInt32, root, comm, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    back.expect(0, kCount, job.rank, root, root);
    for (size_t peer = 0; job.rank == root && peer < ranks; ++peer) {
      all.expect(peer * kCount, kCount, static_cast<int>(peer), root, root);
    }
  }
  REQUIRE(gather(nullptr, nullptr, 1, ncclInt32, job.ranks, comm, stream) == ncclInvalidArgument);
  REQUIRE(ncclCommDestroy(comm));
}

void ring(ncclComm_t comm, cudaStream_t stream, int number) {
  int rank = 0, ranks = 0;
  REQUIRE(ncclCommUserRank(comm, &rank));
  REQUIRE(ncclCommCount(comm, &ranks));
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const Buffer out(kCount), in(kCount), sum(1);
  out.set(0, kCount, rank, next, number);
  REQUIRE(cudaMemcpy(sum.data(), &rank, sizeof rank, cudaMemcpyHostToDevice));
  REQUIRE(ncclGroupStart());
  REQUIRE(ncclSend(out.data(), kCount, ncclInt32, next, comm, stream));
  REQUIRE(ncclAllReduce(sum.data(), sum.data(), 1, ncclInt32, ncclSum, comm, stream));
  REQUIRE(ncclRecv(in.data(), kCount, ncclInt32, previous, comm, stream));
  settle(comm, ncclGroupEnd());
  REQUIRE(cudaStreamSynchronize(stream));
  in.expect(0, kCount, previous, rank, number);
  sum.expect_value(0, 1, ranks * (ranks - 1) / 2);
}

/// A communicator and its child through all their states.
void nonblocking(Job& job) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const cudaStream_t stream = job.stream();
  ncclComm_t comm = nullptr, child = nullptr, brief = nullptr;
  const ncclResult_t made = ncclCommInitRankConfig(&comm, job.ranks, job.ids[0], job.rank, &config);
  settle(comm, made);
  ring(comm, stream, 1);
  settle(comm, ncclCommSplit(comm, 0, job.rank, &child, nullptr));
  REQUIRE(child != nullptr);
  ring(child, stream, 2);
  settle(comm, ncclCommSplit(comm, 0, job.rank, &brief, nullptr));
  ring(brief, stream, 3);
  settle(child, ncclCommFinalize(child));
  REQUIRE(ncclCommDestroy(child));
  const ncclResult_t ended = ncclCommDestroy(brief);  // not finalized first
  REQUIRE(ended == ncclSuccess || ended == ncclInProgress);
  ring(comm, stream, 4);
  settle(comm, ncclCommFinalize(comm));
  REQUIRE(ncclCommDestroy(comm));
}

/// All give up what they wait for, and make another from what they have revoked.
void revoke(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  const Buffer buffer(kCount);
  REQUIRE(ncclRecv(buffer.data(), kCount, ncclInt32, (job.rank + 1) % job.ranks, comm, stream));
  const auto call = look_up<OfCommAndFlags>("ncclCommRevoke");
  REQUIRE(call(comm, 1) == ncclInvalidArgument);
  REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
  REQUIRE(call(comm, 0));
  REQUIRE(cudaStreamSynchronize(stream));
  REQUIRE(ncclRecv(buffer.data(), kCount, ncclInt32, (job.rank + 1) % job.ranks, comm, stream) ==
          ncclInvalidUsage);
  REQUIRE(call(comm, 0) == ncclInvalidArgument);
  ncclComm_t child = nullptr;
  REQUIRE(ncclCommSplit(comm, 0, job.rank, &child, nullptr));
  exchange_all(child, stream, kCount, 2);
  REQUIRE(ncclCommDestroy(child));
  REQUIRE(ncclCommDestroy(comm));
}

/// NCCL's tuner interface, version 5, as far as it goes here.
struct Tuner {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t hash, size_t ranks, size_t nodes, void (*logger)(),
                       void* domains, void* constants);
};

/// What NCCL does near the end of a creation if NCCL_TUNER_PLUGIN names the file in LATE_PLUGIN:
/// loads it and tells the hash of the communicator.
void load_late(const Job& job, const ncclUniqueId& id) {
  const char* const path = std::getenv("LATE_PLUGIN");
  if (path == nullptr || *path == '\0') return;
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(dlerror());
  auto* const tuner = static_cast<const Tuner*>(dlsym(handle, "ncclTunerPlugin_v5"));
  REQUIRE(tuner != nullptr);
  uint64_t hash = 0;
  for (const char byte : id.internal) hash = hash * 31 + static_cast<unsigned char>(byte);
  void* context = nullptr;
  REQUIRE(
      tuner->init(&context, hash, static_cast<size_t>(job.ranks), 2, nullptr, nullptr, nullptr));
}

/// The world exists before the plugin does, as where a tuner brings it in: it exchanges nothing
/// itself, its children and theirs do.
void late_world(Job& job) {
  const ncclComm_t world = job.create(0);
  load_late(job, job.ids[0]);
  const cudaStream_t stream = job.stream();
  ncclComm_t child = nullptr, grandchild = nullptr, second = nullptr;
  REQUIRE(ncclCommSplit(world, 0, job.rank, &child, nullptr));
  exchange_all(child, stream, kCount, 1);
  REQUIRE(ncclCommSplit(child, 0, -job.rank, &grandchild, nullptr));
  exchange_all(grandchild, stream, kCount, 2);
  REQUIRE(ncclCommSplit(world, job.rank == 0 ? NCCL_SPLIT_NOCOLOR : 1, 0, &second, nullptr));
  if (second != nullptr) {
    exchange_all(second, stream, kCount, 3);
    REQUIRE(ncclCommDestroy(second));
  }
  for (const ncclComm_t comm : {grandchild, child, world}) REQUIRE(ncclCommDestroy(comm));
}

void suspend(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  for (int round = 0; round < 2; ++round) {
    exchange_all(comm, stream, kCount, round);
    REQUIRE(look_up<OfCommAndFlags>("ncclCommSuspend")(comm, kSuspendMemory));
    REQUIRE(look_up<OfComm>("ncclCommResume")(comm));
  }
  exchange_all(comm, stream, kCount, 2);
  REQUIRE(ncclCommDestroy(comm));
}

}  // namespace

const std::vector<Scenario> kFamily = {
    {"scalable", scalable},
    {"shrink", shrink},
    {"shrink_abort", shrink_abort},
    {"grow", grow},
    {"rooted", rooted},
    {"nonblocking", nonblocking},
    {"late_world", late_world},
    {"revoke", revoke},
    {"suspend", suspend},
};

}  // namespace integration
