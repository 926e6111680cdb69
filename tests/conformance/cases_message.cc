// SPDX-License-Identifier: Apache-2.0
//
// Matching, sizes, types and places of messages.
#include "cases.h"

namespace conformance {
namespace {

constexpr size_t kBytes = 1000;

void exchanges_of(Trial& t, size_t bytes) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  for (int number = 0; number < 3; ++number) exchange_all(t, comm, stream, bytes, number);
}

/// Three groups of sends on two streams, one group of receives.
void fifo(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t streams[] = {t.stream(), t.stream()};
  exchange_all(t, comm, streams[0], 8, 0);
  const Buffer out(t, 6, kBytes), in(t, 6, kBytes);
  for (int i = 0; i < 6; ++i) out.fill(static_cast<size_t>(i), {t.rank, t.next(), i});
  if (t.rank % 2 == 0) {
    for (int i = 0; i < 6; ++i) {
      NCCL(ncclSend(out.at(i), kBytes, ncclInt8, t.next(), comm, streams[i % 2]));
    }
  }
  NCCL(ncclGroupStart());
  if (t.rank % 2 != 0) {
    for (int i = 0; i < 6; ++i) {
      NCCL(ncclSend(out.at(i), kBytes, ncclInt8, t.next(), comm, streams[0]));
    }
  }
  for (int i = 0; i < 6; ++i) {
    NCCL(ncclRecv(in.at(i), kBytes, ncclInt8, t.previous(), comm, streams[1]));
  }
  NCCL(ncclGroupEnd());
  for (const cudaStream_t stream : streams) t.sync(stream);
  for (int i = 0; i < 6; ++i) in.expect(static_cast<size_t>(i), {t.previous(), t.rank, i});
}

/// Rank 0 sends to all others in one group; each of them receives alone.
void star(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, static_cast<size_t>(t.ranks), kBytes);
  if (t.rank == 0) {
    buffer.fill_for_all(1);
    NCCL(ncclGroupStart());
    for (int peer = 1; peer < t.ranks; ++peer) {
      NCCL(ncclSend(buffer.at(peer), kBytes, ncclInt8, peer, comm, stream));
    }
    NCCL(ncclGroupEnd());
  } else {
    NCCL(ncclRecv(buffer.at(0), kBytes, ncclInt8, 0, comm, stream));
  }
  t.sync(stream);
  if (t.rank != 0) buffer.expect(0, {0, t.rank, 1});
}

/// All exchange but rank 1, which never calls anything.
void skipping(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer out(t, static_cast<size_t>(t.ranks), kBytes);
  const Buffer in(t, static_cast<size_t>(t.ranks), kBytes);
  out.fill_for_all(1);
  if (t.rank != 1) {
    NCCL(ncclGroupStart());
    for (int peer = 0; peer < t.ranks; ++peer) {
      if (peer == 1) continue;
      NCCL(ncclSend(out.at(peer), kBytes, ncclInt8, peer, comm, stream));
      NCCL(ncclRecv(in.at(peer), kBytes, ncclInt8, peer, comm, stream));
    }
    NCCL(ncclGroupEnd());
    t.sync(stream);
    for (int peer = 0; peer < t.ranks; ++peer) {
      if (peer != 1) in.expect(static_cast<size_t>(peer), {peer, t.rank, 1});
    }
  }
  in.show("received");
  t.world.barrier();  // rank 1 ends its communicator with the others
}

/// Only pairs with something to move call; sizes differ from pair to pair.
void uneven(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto bytes = [](int src, int dst) {
    return (src * 3 + dst) % 3 == 0 ? size_t{0} : static_cast<size_t>(src * 700 + dst * 11 + 1);
  };
  constexpr size_t kMost = 6 * 711 + 1;
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, ranks, kMost), in(t, ranks, kMost);
  out.fill_for_all(1);
  NCCL(ncclGroupStart());
  for (int peer = 0; peer < t.ranks; ++peer) {
    if (const size_t n = bytes(t.rank, peer); n > 0) {
      NCCL(ncclSend(out.at(peer), n, ncclUint8, peer, comm, stream));
    }
    if (const size_t n = bytes(peer, t.rank); n > 0) {
      NCCL(ncclRecv(in.at(peer), n, ncclUint8, peer, comm, stream));
    }
  }
  NCCL(ncclGroupEnd());
  t.sync(stream);
  in.show("received");
}

/// Rank 2 gets its message of a group before rank 1 asks for its own.
void independent_peers(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  exchange_all(t, comm, stream, 8, 0);
  const Buffer buffer(t, 3, kBytes);
  if (t.rank == 0) {
    buffer.fill_for_all(1);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(buffer.at(1), kBytes, ncclInt8, 1, comm, stream));
    NCCL(ncclSend(buffer.at(2), kBytes, ncclInt8, 2, comm, stream));
    NCCL(ncclGroupEnd());
  }
  for (const int turn : {2, 1}) {
    if (t.rank == turn) {
      NCCL(ncclRecv(buffer.at(0), kBytes, ncclInt8, 0, comm, stream));
      t.sync(stream);
      buffer.expect(0, {0, turn, 1});
    }
    t.world.barrier();
  }
  t.sync(stream);
}

/// 4n bytes are sent as n int32 and received as 4n int8 or n/2 doubles.
void unlike_types(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer out(t, 2, kBytes), in(t, 2, kBytes);
  for (int i = 0; i < 2; ++i) out.fill(static_cast<size_t>(i), {t.rank, t.next(), i});
  NCCL(ncclGroupStart());
  NCCL(ncclSend(out.at(0), kBytes / 4, ncclInt32, t.next(), comm, stream));
  NCCL(ncclSend(out.at(1), kBytes / 2, ncclBfloat16, t.next(), comm, stream));
  NCCL(ncclRecv(in.at(0), kBytes, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclRecv(in.at(1), kBytes / 8, ncclFloat64, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  for (int i = 0; i < 2; ++i) in.expect(static_cast<size_t>(i), {t.previous(), t.rank, i});
}

/// Several messages of different sizes for each peer, receives before sends at odd ranks.
void several_per_peer(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto blocks = static_cast<size_t>(t.ranks * 3);
  const Buffer out(t, blocks, kBytes), in(t, blocks, kBytes);
  NCCL(ncclGroupStart());
  for (const bool sends : {t.rank % 2 == 0, t.rank % 2 != 0}) {
    for (int i = 0; i < 3; ++i) {
      for (int peer = 0; peer < t.ranks; ++peer) {
        const int block = peer * 3 + i;
        const size_t bytes = kBytes / static_cast<size_t>(i + 1);
        if (sends) {
          out.fill(static_cast<size_t>(block), {t.rank, peer, i});
          NCCL(ncclSend(out.at(block), bytes, ncclInt8, peer, comm, stream));
        } else {
          NCCL(ncclRecv(in.at(block), bytes, ncclInt8, peer, comm, stream));
        }
      }
    }
  }
  NCCL(ncclGroupEnd());
  t.sync(stream);
  in.show("received");
  for (int peer = 0; peer < t.ranks; ++peer) {
    in.expect(static_cast<size_t>(peer * 3), {peer, t.rank, 0});
  }
}

void self(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 2, kBytes);
  buffer.fill(0, {t.rank, t.rank, 1});
  NCCL(ncclGroupStart());
  NCCL(ncclRecv(buffer.at(1), kBytes, ncclInt8, t.rank, comm, stream));
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.rank, comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  buffer.expect(0, {t.rank, t.rank, 1});
  buffer.expect(1, {t.rank, t.rank, 1});
}

void self_in_place(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 1, kBytes);
  buffer.fill(0, {t.rank, t.rank, 1});
  NCCL(ncclGroupStart());
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.rank, comm, stream));
  NCCL(ncclRecv(buffer.at(0), kBytes, ncclInt8, t.rank, comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  buffer.expect(0, {t.rank, t.rank, 1});
}

/// A send to oneself without its receive, alone and in a group with others; nothing happens.
void self_unmatched(Trial& t, bool sends) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer buffer(t, 3, kBytes);
  const auto post = [&] {
    sends ? NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.rank, comm, stream))
          : NCCL(ncclRecv(buffer.at(0), kBytes, ncclInt8, t.rank, comm, stream));
  };
  post();
  NCCL(ncclGroupStart());
  NCCL(ncclSend(buffer.at(1), kBytes, ncclInt8, t.next(), comm, stream));
  post();
  NCCL(ncclRecv(buffer.at(2), kBytes, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  for (size_t i = 0; i < 3; ++i) buffer.expect_untouched(i);
}

/// Sends and receives in parts of one allocation that touch each other.
void one_allocation(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer buffer(t, 2 * ranks, 333);
  for (size_t i = 0; i < ranks; ++i) buffer.fill(2 * i, {t.rank, static_cast<int>(i), 1});
  NCCL(ncclGroupStart());
  for (int peer = 0; peer < t.ranks; ++peer) {
    NCCL(ncclSend(buffer.at(2 * peer), 333, ncclInt8, peer, comm, stream));
    NCCL(ncclRecv(buffer.at(2 * peer + 1), 333, ncclInt8, peer, comm, stream));
  }
  NCCL(ncclGroupEnd());
  t.sync(stream);
  for (size_t i = 0; i < ranks; ++i) {
    buffer.expect(2 * i, {t.rank, static_cast<int>(i), 1});
    buffer.expect(2 * i + 1, {static_cast<int>(i), t.rank, 1});
  }
}

/// One block is sent to all.
void one_source(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer out(t, 1, kBytes), in(t, static_cast<size_t>(t.ranks), kBytes);
  out.fill(0, {t.rank, 0, 1});
  NCCL(ncclGroupStart());
  for (int peer = 0; peer < t.ranks; ++peer) {
    NCCL(ncclRecv(in.at(peer), kBytes, ncclInt8, peer, comm, stream));
    NCCL(ncclSend(out.at(0), kBytes, ncclInt8, peer, comm, stream));
  }
  NCCL(ncclGroupEnd());
  t.sync(stream);
  for (int peer = 0; peer < t.ranks; ++peer) {
    in.expect(static_cast<size_t>(peer), {peer, 0, 1});
  }
}

Cases table_cases() {
  Cases cases;
  constexpr unsigned kMost = kProcesses | kThreads;
  for (const size_t bytes : {1, 7, 255, 4096, 65537, 1 << 20, 2'500'011}) {
    const unsigned layouts = bytes > 2'000'000 ? kProcesses : kMost | kThreeNodes;
    cases.push_back(
        {"exchange " + std::to_string(bytes), {"5.3/counts", "5.2/fifo"}, layouts, [=](Trial& t) {
           exchanges_of(t, bytes);
         }});
  }
  return cases;
}

}  // namespace

Cases message_cases() {
  Cases cases = table_cases();
  constexpr unsigned kEverywhere = kProcesses | kThreads | kThreeNodes | kOneNode | kOnePerNode;
  const Cases own = {
      {"fifo", {"5.2/fifo", "5.2/one-way"}, kEverywhere, fifo},
      {"star", {"5.2/pairwise"}, kEverywhere, star},
      {"skipping", {"5.2/pairwise"}, kProcesses | kThreads | kThreeNodes, skipping},
      {"uneven", {"5.2/pairwise"}, kEverywhere, uneven},
      {"independent peers", {"5.2/pairwise"}, kProcesses | kThreads, independent_peers},
      {"unlike types", {"5.2/bytes"}, kProcesses | kThreads, unlike_types},
      {"several per peer", {"5.2/several"}, kEverywhere, several_per_peer},
      {"self", {"5.2/self"}, kEverywhere | kVersions, self},
      {"self-in-place",
       {"5.4/in-place", "5.2/self"},
       kEverywhere,
       self_in_place,
       21200,
       kUncounted},  // nothing is copied
      {"self send unmatched", {"5.2/self"}, kEverywhere, [](Trial& t) { self_unmatched(t, true); }},
      {"self-receive-unmatched",
       {"5.2/self"},
       kEverywhere,
       [](Trial& t) { self_unmatched(t, false); }},
      {"one allocation", {"5.4/in-place"}, kProcesses | kThreads, one_allocation},
      {"one source", {"5.4/in-place"}, kProcesses | kThreads, one_source},
  };
  cases.insert(cases.end(), own.begin(), own.end());
  return cases;
}

}  // namespace conformance
