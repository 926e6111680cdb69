// SPDX-License-Identifier: Apache-2.0
//
// Communicators made from others: split, shrunk, grown and revoked ones.
#include <algorithm>

#include "cases.h"

namespace conformance {
namespace {

constexpr size_t kBytes = 1000;
constexpr int kShrinkAbort = 1;
constexpr unsigned kMany = kProcesses | kThreads | kThreeNodes | kOneNode;

/// Ring among the ranks of any communicator.
void ring(Trial& t, ncclComm_t comm, cudaStream_t stream, int number) {
  exchange_all(t, comm, stream, kBytes, number);
}

/// `color(rank)` and `key(rank)` for a split; the children exchange.
template <typename Color, typename Key>
void split_by(Trial& t, Color color, Key key) {
  if (LACKS(ncclCommSplit)) return;
  const ncclComm_t parent = t.comm();
  const cudaStream_t stream = t.stream();
  const ncclComm_t child = t.split(parent, color(t.rank), key(t.rank));
  if (child != nullptr) {
    int rank = -1;
    NCCL(ncclCommUserRank(child, &rank));
    t.note("rank %d", rank);
    ring(t, child, stream, 1);
  }
  ring(t, parent, stream, 2);
}

void split_of_split(Trial& t) {
  const ncclComm_t first = t.comm();
  const ncclComm_t second = t.split(first, 0, -t.rank);
  const ncclComm_t third = t.split(second, t.rank == 0 ? NCCL_SPLIT_NOCOLOR : 1, t.rank);
  const cudaStream_t stream = t.stream();
  if (third != nullptr) ring(t, third, stream, 1);
  ring(t, second, stream, 2);
  // Children outlive their parents.
  t.destroy(first);
  ring(t, second, stream, 3);
  if (third != nullptr) ring(t, third, stream, 4);
}

void split_sharing(Trial& t) {
  const ncclComm_t parent = t.comm();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = 1;
  const ncclComm_t child = t.split(parent, 0, t.rank, &config);
  const cudaStream_t stream = t.stream();
  ring(t, child, stream, 1);
  ring(t, parent, stream, 2);
  t.destroy(child);
  ring(t, parent, stream, 3);
}

void split_refused(Trial& t) {
  const ncclComm_t parent = t.comm();
  ncclComm_t child = nullptr;
  NCCL(ncclCommSplit(nullptr, 0, 0, &child, nullptr));
  NCCL(ncclCommSplit(parent, 0, 0, nullptr, nullptr));
  CHECK(child == nullptr);
  ring(t, parent, t.stream(), 1);
}

/// Survivors of a list, which may be in any order.
void shrink(Trial& t, std::vector<int> out, int flags) {
  if (LACKS(ncclCommShrink)) return;
  const ncclComm_t parent = t.comm();
  const cudaStream_t stream = t.stream();
  ring(t, parent, stream, 1);
  if (std::count(out.begin(), out.end(), t.rank) == 0) {
    ncclComm_t rest = nullptr;
    NCCL(ncclCommShrink(parent, out.data(), static_cast<int>(out.size()), &rest, nullptr, flags));
    CHECK(std::is_sorted(out.begin(), out.end()));
    t.watch(rest);
    ring(t, rest, stream, 2);
  }
  t.world.barrier();
  if (flags == kShrinkAbort) {
    t.abort(parent);
  } else {
    ring(t, parent, stream, 3);
  }
}

void shrink_refused(Trial& t) {
  if (LACKS(ncclCommShrink)) return;
  const ncclComm_t parent = t.comm();
  ncclComm_t rest = nullptr;
  int self[] = {t.rank}, other[] = {t.next()};
  NCCL(ncclCommShrink(parent, self, 1, &rest, nullptr, 0));
  NCCL(ncclCommShrink(parent, other, 0, &rest, nullptr, 0));
  NCCL(ncclCommShrink(parent, nullptr, 1, &rest, nullptr, 0));
  NCCL(ncclCommShrink(nullptr, other, 1, &rest, nullptr, 0));
  CHECK(rest == nullptr);
  ring(t, parent, t.stream(), 1);
}

void grow(Trial& t) {
  if (LACKS(ncclCommGrow)) return;
  const int last = t.ranks - 1;
  const cudaStream_t stream = t.stream();
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclComm_t comm = nullptr, grown = nullptr;
  ncclUniqueId id{};
  if (t.rank != last) {
    NCCL(ncclCommInitRank(&comm, last, ids.at(0), t.rank));
    t.watch(comm);
    ring(t, comm, stream, 1);
    if (t.rank == 0) NCCL(ncclCommGetUniqueId(comm, &id));
  }
  const std::string given = t.world.gather({id.internal, sizeof id.internal}).front();
  std::copy(given.begin(), given.end(), id.internal);
  NCCL(ncclCommGrow(comm, t.ranks, t.rank == 0 || t.rank == last ? &id : nullptr,
                    t.rank == last ? last : -1, &grown, nullptr));
  t.watch(grown);
  ring(t, grown, stream, 2);
}

void revoke(Trial& t) {
  if (LACKS(ncclCommRevoke)) return;
  NCCL(ncclCommRevoke(nullptr, 0));
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  ring(t, comm, stream, 1);
  NCCL(ncclCommRevoke(comm, 1));
  t.world.barrier();
  NCCL(ncclCommRevoke(comm, 0));
  NCCL(ncclCommRevoke(comm, 0));
  const Buffer buffer(t, 1, kBytes);
  NCCL(ncclSend(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  NCCL(ncclRecv(buffer.at(0), kBytes, ncclInt8, t.next(), comm, stream));
  NCCL(ncclAlltoAll(buffer.at(0), buffer.at(0), 1, ncclInt8, comm, stream));
  NCCL(ncclBroadcast(buffer.at(0), buffer.at(0), 1, ncclInt8, 0, comm, stream));
  NCCL(ncclCommFinalize(comm));
  t.world.barrier();
  const ncclComm_t child = t.split(comm, 0, t.rank);
  if (child != nullptr) ring(t, child, stream, 2);
}

/// Everybody splits; color and key depend on the rank.
Case splitting(std::string name, int (*color)(int rank), int (*key)(int rank),
               unsigned layouts = kMany, unsigned traits = kAll) {
  return {std::move(name), {"5.9/split"}, layouts, [=](Trial& t) { split_by(t, color, key); },
          21801,           traits};
}

Cases splits() {
  const auto rank = [](int r) { return r; };
  const auto same = [](int) { return 1; };
  return {
      splitting("split into one", same, rank, kMany | kVersions),
      splitting(
          "split in halves", [](int r) { return r % 2; }, rank, kMany, kShared),
      splitting("split reversed", same, [](int r) { return -r; }),
      splitting("split with equal keys", same, same),
      splitting(
          "split without rank 0", [](int r) { return r == 0 ? NCCL_SPLIT_NOCOLOR : 0; }, rank,
          kMany, kShared),
      splitting(
          "split by a negative color", [](int) { return -5; }, rank, kMany, kShared),
      splitting(
          "split for nobody", [](int) { return NCCL_SPLIT_NOCOLOR; }, rank),
      {"split of a split", {"5.9/split"}, kMany, split_of_split, 21801, kShared},
      {"split that shares", {"5.9/split"}, kMany, split_sharing, 21801},
      {"splits that are refused", {"5.9/split"}, kMany, split_refused, 21801},
  };
}

}  // namespace

Cases family_cases() {
  Cases cases = splits();
  const Cases others = {
      {"shrink by the first",
       {"5.9/shrink"},
       kMany,
       [](Trial& t) { shrink(t, {0}, 0); },
       22703,
       kShared},
      {"shrink by two",
       {"5.9/shrink"},
       kMany,
       [](Trial& t) {
         shrink(t, {t.ranks - 1, 1}, 0);
       },
       22703,
       kShared},
      {"shrink and abort",
       {"5.9/shrink", "5.9/in-flight"},
       kMany,
       [](Trial& t) { shrink(t, {1}, kShrinkAbort); },
       22703,
       kUncounted},
      {"shrinks that are refused", {"5.9/shrink"}, kMany, shrink_refused, 22703},
      {"grow", {"5.9/grow"}, kProcesses | kVersions, grow, 21200, kShared},
      {"revoke", {"5.9/revoke", "5.7/revoked"}, kMany, revoke, 22807},
  };
  cases.insert(cases.end(), others.begin(), others.end());
  return cases;
}

}  // namespace conformance
