// SPDX-License-Identifier: Apache-2.0
//
// Scenarios about groups: what programs write between start and end.
#include <array>
#include <future>
#include <memory>
#include <vector>

#include "job.h"

namespace integration {
namespace {

constexpr size_t kCount = 3000;

int next(const Job& job, int steps = 1) { return (job.rank + steps) % job.ranks; }
int previous(const Job& job, int steps = 1) { return (job.rank + job.ranks - steps) % job.ranks; }

/// An all-to-all inside two groups, next to messages around a ring, with another device current.
void nested(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  const auto ranks = static_cast<size_t>(job.ranks);
  const Buffer from(kCount * ranks), to(kCount * ranks), out(2 * kCount), in(2 * kCount);
  for (int peer = 0; peer < job.ranks; ++peer) {
    from.set(static_cast<size_t>(peer) * kCount, kCount, job.rank, peer, 0);
  }
  out.set(0, kCount, job.rank, next(job), 1);
  out.set(kCount, kCount, job.rank, next(job), 2);

  int devices = 0, current = -1;
  REQUIRE(cudaGetDeviceCount(&devices));
  const int other = (job.device + 1) % devices;
  REQUIRE(cudaSetDevice(other));
  REQUIRE(ncclGroupStart());
  REQUIRE(ncclSend(out.data(), kCount, ncclInt32, next(job), comm, stream));
  REQUIRE(ncclGroupStart());
  REQUIRE(ncclAlltoAll(from.data(), to.data(), kCount, ncclInt32, comm, stream));
  REQUIRE(ncclRecv(in.data(), kCount, ncclInt32, previous(job), comm, stream));
  REQUIRE(ncclGroupEnd());
  REQUIRE(ncclGroupStart());
  REQUIRE(ncclGroupEnd());
  REQUIRE(ncclRecv(in.data() + kCount, kCount, ncclInt32, previous(job), comm, stream));
  REQUIRE(ncclSend(out.data() + kCount, kCount, ncclInt32, next(job), comm, stream));
  REQUIRE(ncclGroupEnd());
  REQUIRE(cudaGetDevice(&current));
  REQUIRE(current == other);
  REQUIRE(cudaSetDevice(job.device));
  REQUIRE(cudaStreamSynchronize(stream));

  // Messages of one pair keep their order, those of the all-to-all among them.
  for (int peer = 0; peer < job.ranks; ++peer) {
    if (peer == previous(job)) continue;
    to.expect(static_cast<size_t>(peer) * kCount, kCount, peer, job.rank, 0);
  }
  to.expect(static_cast<size_t>(previous(job)) * kCount, kCount, previous(job), job.rank, 1);
  in.expect(0, kCount, previous(job), job.rank, 0);
  in.expect(kCount, kCount, previous(job), job.rank, 2);
  REQUIRE(ncclCommDestroy(comm));
}

/// Collectives that stay with NCCL, before and after messages in the same group.
void mixed(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  const Buffer out(kCount), in(kCount), sum(1), most(1);
  for (int round = 0; round < 3; ++round) {
    out.set(0, kCount, job.rank, next(job), round);
    const int rank = job.rank;
    REQUIRE(cudaMemcpy(sum.data(), &rank, sizeof rank, cudaMemcpyHostToDevice));
    REQUIRE(cudaMemcpy(most.data(), &rank, sizeof rank, cudaMemcpyHostToDevice));
    REQUIRE(ncclGroupStart());
    REQUIRE(ncclAllReduce(sum.data(), sum.data(), 1, ncclInt32, ncclSum, comm, stream));
    REQUIRE(ncclSend(out.data(), kCount, ncclInt32, next(job), comm, stream));
    REQUIRE(ncclRecv(in.data(), kCount, ncclInt32, previous(job), comm, stream));
    REQUIRE(ncclAllReduce(most.data(), most.data(), 1, ncclInt32, ncclMax, comm, stream));
    REQUIRE(ncclGroupEnd());
    REQUIRE(cudaStreamSynchronize(stream));
    in.expect(0, kCount, previous(job), job.rank, round);
    sum.expect_value(0, 1, job.ranks * (job.ranks - 1) / 2);
    most.expect_value(0, 1, job.ranks - 1);
  }
  REQUIRE(ncclCommDestroy(comm));
}

/// What is done on one communicator follows one order, on whichever streams it is: a sum of what a
/// receive on another stream brings, and a message with the sum.
void one_order(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t messages = job.stream(), sums = job.stream();
  exchange_all(comm, messages, kCount, 0);
  const Buffer out(1), in(1), sum(1), back(1);
  const int rank = job.rank;
  REQUIRE(cudaMemcpy(out.data(), &rank, sizeof rank, cudaMemcpyHostToDevice));
  std::promise<void> work;
  const auto wait = [](void* promise) {
    static_cast<std::promise<void>*>(promise)->get_future().wait();
  };
  REQUIRE(cudaLaunchHostFunc(messages, wait, &work));
  REQUIRE(ncclGroupStart());
  REQUIRE(ncclSend(out.data(), 1, ncclInt32, next(job), comm, messages));
  REQUIRE(ncclRecv(in.data(), 1, ncclInt32, previous(job), comm, messages));
  REQUIRE(ncclGroupEnd());
  REQUIRE(ncclAllReduce(in.data(), sum.data(), 1, ncclInt32, ncclSum, comm, sums));
  REQUIRE(ncclGroupStart());
  REQUIRE(ncclSend(sum.data(), 1, ncclInt32, next(job), comm, messages));
  REQUIRE(ncclRecv(back.data(), 1, ncclInt32, previous(job), comm, messages));
  REQUIRE(ncclGroupEnd());
  work.set_value();
  REQUIRE(cudaStreamSynchronize(sums));
  REQUIRE(cudaStreamSynchronize(messages));
  sum.expect_value(0, 1, job.ranks * (job.ranks - 1) / 2);
  back.expect_value(0, 1, job.ranks * (job.ranks - 1) / 2);
  REQUIRE(ncclCommDestroy(comm));
}

/// Two communicators in one group on one stream, named in different orders by different ranks.
void two_communicators(Job& job) {
  const std::array<ncclComm_t, 2> comms = {job.create(0), job.create(1)};
  const cudaStream_t stream = job.stream();
  const Buffer out(2 * kCount), in(2 * kCount);
  for (int c = 0; c < 2; ++c) {
    out.set(static_cast<size_t>(c) * kCount, kCount, job.rank, next(job), c);
  }
  REQUIRE(ncclGroupStart());
  for (int i = 0; i < 2; ++i) {
    const auto c = static_cast<size_t>((i + job.rank) % 2);
    REQUIRE(ncclRecv(in.data() + c * kCount, kCount, ncclInt32, previous(job), comms[c], stream));
    REQUIRE(ncclSend(out.data() + c * kCount, kCount, ncclInt32, next(job), comms[c], stream));
  }
  REQUIRE(ncclGroupEnd());
  REQUIRE(cudaStreamSynchronize(stream));
  in.expect(0, kCount, previous(job), job.rank, 0);
  in.expect(kCount, kCount, previous(job), job.rank, 1);
  for (const ncclComm_t comm : comms) REQUIRE(ncclCommDestroy(comm));
}

/// A group on three streams: it sees what was put on each before, and each waits for all of it.
void streams(Job& job) {
  const ncclComm_t comm = job.create(0);
  const std::array<cudaStream_t, 3> lanes = {job.stream(), job.stream(), job.stream()};
  const Buffer staged(3 * kCount), out(3 * kCount), in(3 * kCount), copy(3 * kCount);
  constexpr size_t kBytes = kCount * sizeof(int);
  for (size_t s = 0; s < 3; ++s) {
    staged.set(s * kCount, kCount, job.rank, next(job), static_cast<int>(s));
    REQUIRE(cudaMemcpyAsync(out.data() + s * kCount, staged.data() + s * kCount, kBytes,
                            cudaMemcpyDeviceToDevice, lanes[s]));
  }
  REQUIRE(ncclGroupStart());
  for (size_t s = 0; s < 3; ++s) {
    REQUIRE(ncclSend(out.data() + s * kCount, kCount, ncclInt32, next(job), comm, lanes[s]));
    REQUIRE(ncclRecv(in.data() + s * kCount, kCount, ncclInt32, previous(job), comm, lanes[s]));
  }
  REQUIRE(ncclGroupEnd());
  for (size_t s = 0; s < 3; ++s) {  // each reads what another stream's receive wrote
    const size_t t = (s + 1) % 3;
    REQUIRE(cudaMemcpyAsync(copy.data() + t * kCount, in.data() + t * kCount, kBytes,
                            cudaMemcpyDeviceToDevice, lanes[s]));
  }
  for (const cudaStream_t lane : lanes) REQUIRE(cudaStreamSynchronize(lane));
  for (size_t s = 0; s < 3; ++s) {
    copy.expect(s * kCount, kCount, previous(job), job.rank, static_cast<int>(s));
  }
  REQUIRE(ncclCommDestroy(comm));
}

/// The streams that need not be made: the legacy one under both its names, and the thread's own.
void default_streams(Job& job) {
  const ncclComm_t comm = job.create(0);
  const Buffer out(kCount), in(kCount), copy(kCount);
  const std::array<cudaStream_t, 3> lanes = {nullptr, cudaStreamLegacy, cudaStreamPerThread};
  for (int round = 0; round < 6; ++round) {
    const cudaStream_t lane = lanes[static_cast<size_t>(round) % lanes.size()];
    out.set(0, kCount, job.rank, next(job), round);
    REQUIRE(ncclGroupStart());
    REQUIRE(ncclSend(out.data(), kCount, ncclInt32, next(job), comm, lane));
    REQUIRE(ncclRecv(in.data(), kCount, ncclInt32, previous(job), comm, lane));
    REQUIRE(ncclGroupEnd());
    REQUIRE(cudaMemcpyAsync(copy.data(), in.data(), kCount * sizeof(int), cudaMemcpyDeviceToDevice,
                            lane));
    REQUIRE(cudaStreamSynchronize(lane));
    copy.expect(0, kCount, previous(job), job.rank, round);
  }
  REQUIRE(ncclCommDestroy(comm));
}

/// One thread is all ranks of all nodes: every call of a group names another device.
void one_thread(Job&) {
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count));
  const auto ranks = static_cast<size_t>(count);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id));
  std::vector<ncclComm_t> comms(ranks);
  std::vector<std::unique_ptr<Buffer>> from, to;
  REQUIRE(ncclGroupStart());
  for (int rank = 0; rank < count; ++rank) {
    REQUIRE(cudaSetDevice(rank));
    REQUIRE(ncclCommInitRank(&comms[static_cast<size_t>(rank)], count, id, rank));
  }
  REQUIRE(ncclGroupEnd());
  for (int rank = 0; rank < count; ++rank) {
    REQUIRE(cudaSetDevice(rank));
    from.push_back(std::make_unique<Buffer>(kCount * ranks));
    to.push_back(std::make_unique<Buffer>(kCount * ranks));
    for (int peer = 0; peer < count; ++peer) {
      from.back()->set(static_cast<size_t>(peer) * kCount, kCount, rank, peer, 1);
    }
  }
  REQUIRE(cudaSetDevice(1));
  REQUIRE(ncclGroupStart());
  for (size_t r = 0; r < ranks; ++r) {  // streams of devices that are not current
    REQUIRE(ncclAlltoAll(from[r]->data(), to[r]->data(), kCount, ncclInt32, comms[r],
                         r % 2 == 0 ? nullptr : cudaStreamPerThread));
  }
  REQUIRE(ncclGroupEnd());
  int current = -1;
  REQUIRE(cudaGetDevice(&current));
  REQUIRE(current == 1);
  for (int rank = 0; rank < count; ++rank) {
    REQUIRE(cudaSetDevice(rank));
    REQUIRE(cudaDeviceSynchronize());
    for (int peer = 0; peer < count; ++peer) {
      to[static_cast<size_t>(rank)]->expect(static_cast<size_t>(peer) * kCount, kCount, peer, rank,
                                            1);
    }
  }
  REQUIRE(ncclGroupStart());
  for (const ncclComm_t comm : comms) REQUIRE(ncclCommDestroy(comm));
  REQUIRE(ncclGroupEnd());
}

/// All but rank 0, in reverse order: positions in their nodes differ from those in the world.
void split(Job& job) {
  const ncclComm_t world = job.create(0);
  const cudaStream_t stream = job.stream();
  ncclComm_t part = nullptr;
  const int color = job.rank == 0 ? NCCL_SPLIT_NOCOLOR : 1;
  REQUIRE(ncclCommSplit(world, color, job.ranks - job.rank, &part, nullptr));
  REQUIRE((part == nullptr) == (job.rank == 0));
  if (part != nullptr) exchange_all(part, stream, kCount, 1);
  exchange_all(world, stream, kCount, 2);
  if (part != nullptr) {
    exchange_all(part, stream, kCount, 3);
    REQUIRE(ncclCommDestroy(part));
  }
  REQUIRE(ncclCommDestroy(world));
}

/// Wrong calls cancel their group; the communicator goes on.
void refused(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  const Buffer out(kCount), in(kCount);
  REQUIRE(ncclSend(out.data(), 1, ncclInt32, job.ranks, comm, stream) == ncclInvalidArgument);
  REQUIRE(ncclSend(out.data(), 1, ncclInt32, job.rank, comm, stream) == ncclInvalidUsage);
  REQUIRE(ncclGroupStart());
  REQUIRE(ncclSend(out.data(), kCount, ncclInt32, next(job), comm, stream));
  REQUIRE(ncclRecv(in.data(), kCount, ncclInt32, -1, comm, stream) == ncclInvalidArgument);
  REQUIRE(ncclGroupEnd() == ncclInvalidArgument);
  exchange_all(comm, stream, kCount, 1);
  REQUIRE(ncclCommDestroy(comm));
}

void plain(Job& job) {
  const ncclComm_t comm = job.create(0);
  exchange_all(comm, job.stream(), kCount, 1);
  REQUIRE(ncclCommDestroy(comm));
}

}  // namespace

const std::vector<Scenario> kTraffic = {
    {"nested", nested},
    {"mixed", mixed},
    {"two_communicators", two_communicators},
    {"default_streams", default_streams},
    {"one_order", one_order},
    {"one_thread", one_thread},
    {"streams", streams},
    {"split", split},
    {"refused", refused},
    {"plain", plain},
};

}  // namespace integration
