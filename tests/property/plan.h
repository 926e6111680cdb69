// SPDX-License-Identifier: Apache-2.0
//
// What the exchange test does, derived from a seed alone, so that every rank knows it all without
// asking the others: which communicators there are and which messages each exchange has.
//
// A message belongs to a *step* of its exchange. A rank goes through the steps in order and may
// put neighbouring steps into one group; which ones differs from rank to rank. That cannot
// deadlock: of all unfinished steps the first is under way at every rank that takes part in it.
#pragma once

#include <cstdint>
#include <vector>

namespace property {

/// One ncclCommInitRank or ncclCommSplit by all ranks.
struct Creation {
  int parent = -1;              ///< creation that is split, -1: made from a unique id
  std::vector<int> color, key;  ///< by world rank, for a split; color -1: takes no part
  /// World ranks of each communicator it makes, in order of their rank there.
  std::vector<std::vector<int>> communicators;
};

struct Message {
  int src = 0, dst = 0;  ///< world ranks
  int step = 0;
  uint64_t bytes = 0;
};

/// What happens on one communicator in one exchange.
struct Part {
  int creation = 0, communicator = 0;
  bool all_to_all = false;
  int all_to_all_step = 0;
  uint64_t all_to_all_bytes = 0;  ///< per peer
  std::vector<Message> messages;  ///< those of one (src, dst) in the order they are posted
};

struct Exchange {
  int steps = 1;
  int times = 1;  ///< how often all ranks do it; in a graph or not is for each rank to choose
  std::vector<Part> parts;
};

/// Which exchanges are done several times, by some ranks in graphs.
enum class Captures : uint8_t {
  kNone,
  kWhole,  ///< those on communicators of all ranks
  kAll,
};

struct Limits {
  uint64_t message_bytes = 8ULL << 20;
  uint64_t exchange_bytes = 64ULL << 20;
  Captures captures = Captures::kNone;
};

std::vector<Creation> plan_creations(uint64_t seed, int ranks);
Exchange plan_exchange(uint64_t seed, int number, const std::vector<Creation>& creations,
                       const Limits& limits);

}  // namespace property
