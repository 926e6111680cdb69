// SPDX-License-Identifier: Apache-2.0
//
// What groups promise.
#include <thread>

#include "cases.h"

namespace conformance {
namespace {

constexpr size_t kBytes = 1000;

/// Posts a send to the next rank and a receive from the one before, without a group.
void post_ring(Trial& t, ncclComm_t comm, cudaStream_t stream, const Buffer& buffer) {
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, stream));
}

void fill(Trial& t, const Buffer& buffer, int number) {
  buffer.fill(0, {t.rank, t.next(), number});
}

void expect(Trial& t, const Buffer& buffer, int number) {
  buffer.expect(1, {t.previous(), t.rank, number});
}

void end_without_start(Trial& t) {
  NCCL(ncclGroupEnd());
  const ncclComm_t comm = t.comm();
  NCCL(ncclGroupEnd());
  exchange_ring(t, comm, t.stream(), kBytes, 1);
  NCCL(ncclGroupEnd());
}

void empty(Trial& t) {
  const ncclComm_t comm = t.comm();
  for (int i = 0; i < 3; ++i) {
    NCCL(ncclGroupStart());
    NCCL(ncclGroupEnd());
  }
  exchange_ring(t, comm, t.stream(), kBytes, 1);
}

void nested(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 1);
  NCCL(ncclGroupStart());
  NCCL(ncclGroupStart());
  NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  // Nothing has been posted yet.
  CUDA(cudaStreamQuery(stream));
  NCCL(ncclGroupStart());
  NCCL(ncclGroupStart());
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupEnd());
  t.sync(stream);
  expect(t, buffer, 1);
}

/// A call of the group fails, first, in the middle or last; nothing of the group happens.
void latching(Trial& t, int bad_position, bool nest) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 1);
  NCCL(ncclGroupStart());
  if (nest) NCCL(ncclGroupStart());
  const auto bad = [&](int position) {
    if (position != bad_position) return;
    NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.ranks, comm, stream));
  };
  bad(0);
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  bad(1);
  if (nest) NCCL(ncclGroupEnd());
  NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, stream));
  bad(2);
  NCCL(ncclGroupEnd());
  t.sync(stream);
  buffer.expect_untouched(1);
  // The next group knows nothing of it.
  exchange_ring(t, comm, stream, kBytes, 2);
}

/// As before with another communicator, whose messages do not happen either.
void latching_of_two(Trial& t) {
  const ncclComm_t first = t.comm(), second = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer a(t, 2, kBytes), b(t, 2, kBytes);
  NCCL(ncclGroupStart());
  post_ring(t, first, stream, a);
  NCCL(ncclSend(b.at(0), kBytes, ncclInt8, -1, second, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  a.expect_untouched(1);
  exchange_ring(t, first, stream, kBytes, 1);
  exchange_ring(t, second, stream, kBytes, 2);
}

/// A collective fails; the messages of the group do not happen.
void latching_of_collective(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  NCCL(ncclGroupStart());
  post_ring(t, comm, stream, buffer);
  NCCL(ncclBroadcast(buffer.at(0), buffer.at(0), kBytes, ncclInt8, t.ranks, comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  buffer.expect_untouched(1);
  exchange_ring(t, comm, stream, kBytes, 1);
}

/// Even ranks send and then receive, odd ones the other way round, each call on its own.
void implicit(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 1);
  if (t.rank % 2 == 0 && t.rank + 1 < t.ranks) {
    NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.rank + 1, comm, stream));
    NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.rank + 1, comm, stream));
  } else if (t.rank % 2 != 0) {
    NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.rank - 1, comm, stream));
    NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.rank - 1, comm, stream));
  }
  t.sync(stream);
  buffer.show("received");
}

/// A group of one thread is no group of another.
void other_thread(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 1);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  std::thread other([&] { NCCL(ncclGroupEnd()); });
  other.join();
  NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  expect(t, buffer, 1);
}

/// Messages on two communicators in one group, in another order at every other rank.
void two_communicators(Trial& t, bool one_stream) {
  const ncclComm_t comms[] = {t.comm(), t.comm()};
  const cudaStream_t first = t.stream();
  const cudaStream_t streams[] = {first, one_stream ? first : t.stream()};
  const Buffer a(t, 2, kBytes), b(t, 2, kBytes);
  const Buffer* const buffers[] = {&a, &b};
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 2; ++i) fill(t, *buffers[i], round * 2 + i);
    NCCL(ncclGroupStart());
    for (int i = 0; i < 2; ++i) {
      const int which = (i + t.rank + round) % 2;
      post_ring(t, comms[which], streams[which], *buffers[which]);
    }
    NCCL(ncclGroupEnd());
    for (const cudaStream_t stream : streams) t.sync(stream);
    for (int i = 0; i < 2; ++i) expect(t, *buffers[i], round * 2 + i);
  }
}

/// A collective and messages in one group, called in either order.
void with_collective(Trial& t, int position) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes), sum(t, 1, 4000);
  fill(t, buffer, 1);
  sum.fill(0, {0, 0, 2});
  NCCL(ncclGroupStart());
  if (position == 0) {
    NCCL(ncclAllReduce(sum.at(0), sum.at(0), 1000, ncclInt32, ncclSum, comm, stream));
  }
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  if (position == 1) {
    NCCL(ncclAllReduce(sum.at(0), sum.at(0), 1000, ncclInt32, ncclSum, comm, stream));
  }
  NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.previous(), comm, stream));
  if (position == 2) {
    NCCL(ncclAllReduce(sum.at(0), sum.at(0), 1000, ncclInt32, ncclSum, comm, stream));
  }
  NCCL(ncclGroupEnd());
  t.sync(stream);
  expect(t, buffer, 1);
  sum.show("sum");
}

/// The message sends what the collective of its group has made, since that goes first.
void collective_first(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer from(t, 1, kBytes), buffer(t, 2, kBytes);
  if (t.rank == 0) from.fill(0, {0, 0, 1});
  NCCL(ncclGroupStart());
  post_ring(t, comm, stream, buffer);
  NCCL(ncclBroadcast(from.at(0), buffer.at(0), kBytes, ncclInt8, 0, comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  buffer.expect(0, {0, 0, 1});
  buffer.expect(1, {0, 0, 1});
}

/// The current device is another one than the communicator's, and stays so.
void device(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 1);
  int devices = 0, now = -1;
  CUDA(cudaGetDeviceCount(&devices));
  const int other = (t.device + 1) % devices;
  CUDA(cudaSetDevice(other));
  NCCL(ncclGroupStart());
  post_ring(t, comm, stream, buffer);
  NCCL(ncclGroupEnd());
  CUDA(cudaGetDevice(&now));
  CHECK(now == other);
  CUDA(cudaSetDevice(t.device));
  t.sync(stream);
  expect(t, buffer, 1);
}

/// A group makes a second communicator while it uses the first.
void with_creation(Trial& t) {
  const ncclComm_t first = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 1);
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclComm_t second = nullptr;
  NCCL(ncclGroupStart());
  post_ring(t, first, stream, buffer);
  NCCL(ncclCommInitRank(&second, t.ranks, ids[0], t.rank));
  CHECK(second != nullptr);
  NCCL(ncclGroupEnd());
  t.watch(second);
  t.sync(stream);
  expect(t, buffer, 1);
  exchange_ring(t, second, stream, kBytes, 2);
}

/// A group ends a communicator while it uses another.
void with_end(Trial& t) {
  const ncclComm_t first = t.comm(), second = t.comm();
  const cudaStream_t stream = t.stream();
  exchange_ring(t, second, stream, kBytes, 1);
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 2);
  t.forget(second);
  NCCL(ncclGroupStart());
  NCCL(ncclCommDestroy(second));
  post_ring(t, first, stream, buffer);
  NCCL(ncclGroupEnd());
  t.sync(stream);
  expect(t, buffer, 2);
}

void split_in_group(Trial& t) {
  const ncclComm_t parent = t.comm();
  ncclComm_t child = parent;
  NCCL(ncclGroupStart());
  NCCL(ncclCommSplit(parent, 0, t.rank, &child, nullptr));
  CHECK(child == nullptr);
  NCCL(ncclGroupEnd());
  CHECK(child != nullptr);
  t.watch(child);
  exchange_ring(t, child, t.stream(), kBytes, 1);
}

/// Nothing of the group starts: neither messages nor collectives.
void simulation(Trial& t) {
  if (LACKS(ncclGroupSimulateEnd)) return;
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 1);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  NCCL(ncclGroupStart());
  post_ring(t, comm, stream, buffer);
  NCCL(ncclAllGather(buffer.at(0), buffer.at(1), 10, ncclInt8, comm, stream));
  NCCL(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime > 0);
  t.sync(stream);
  buffer.expect_untouched(1);
  NCCL(ncclGroupSimulateEnd(&info));  // without a start
  exchange_ring(t, comm, stream, kBytes, 2);
}

void simulation_in_inner_group(Trial& t) {
  if (LACKS(ncclGroupSimulateEnd)) return;
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  fill(t, buffer, 1);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  NCCL(ncclGroupStart());
  NCCL(ncclGroupStart());
  post_ring(t, comm, stream, buffer);
  NCCL(ncclGroupSimulateEnd(&info));  // an inner end like any other
  NCCL(ncclGroupEnd());
  t.sync(stream);
  expect(t, buffer, 1);
}

}  // namespace

Cases group_cases() {
  constexpr unsigned kBoth = kProcesses | kThreads;
  constexpr unsigned kMany = kBoth | kThreeNodes | kOneNode;
  Cases cases = {
      {"end without start", {"5.1/end-without-start"}, kBoth | kVersions, end_without_start},
      {"empty groups", {"5.1/nested"}, kBoth, empty},
      {"nested groups", {"5.1/nested"}, kMany | kVersions, nested},
      {"latching of two", {"5.1/latched-error"}, kMany, latching_of_two},
      {"latching of collective", {"5.1/latched-error"}, kMany, latching_of_collective},
      {"implicit groups", {"5.1/implicit-group"}, kMany, implicit},
      {"group of other thread", {"5.1/thread-local", "5.10/threads"}, kBoth, other_thread},
      {"two-communicators",
       {"5.1/communicators"},
       kMany,
       [](Trial& t) { two_communicators(t, false); }},
      {"two-communicators-one-stream",
       {"5.1/communicators"},
       kMany,
       [](Trial& t) { two_communicators(t, true); }},
      {"collective first", {"5.1/collectives-first"}, kMany, collective_first},
      {"device stays", {"5.1/current-device"}, kBoth, device},
      {"group with creation",
       {"5.1/creation-and-traffic", "5.1/handles-in-groups"},
       kBoth,
       with_creation},
      {"group with end", {"5.1/creation-and-traffic"}, kBoth, with_end},
      {"group with split", {"5.1/handles-in-groups"}, kBoth, split_in_group, 21801},
      {"simulation", {"5.1/simulate"}, kBoth, simulation, 22203},
      {"simulation in inner group", {"5.1/simulate"}, kBoth, simulation_in_inner_group, 22203},
  };
  for (const int position : {0, 1, 2}) {
    const std::string number = std::to_string(position);
    cases.push_back({"latching " + number, {"5.1/latched-error"}, kMany, [=](Trial& t) {
                       latching(t, position, false);
                     }});
    cases.push_back(
        {"latching nested " + number, {"5.1/latched-error", "5.1/nested"}, kBoth, [=](Trial& t) {
           latching(t, position, true);
         }});
    cases.push_back({"collective at " + number, {"5.1/collectives-first"}, kMany, [=](Trial& t) {
                       with_collective(t, position);
                     }});
  }
  return cases;
}

}  // namespace conformance
