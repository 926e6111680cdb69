// SPDX-License-Identifier: Apache-2.0
//
// A random NCCL program, derived from a seed alone, so that every rank knows all of it: which
// communicators are made and ended, and which operations are asked for in which steps.
//
// All ranks go through the steps in order. The operations of one step are in one group at each
// rank, which puts them in an order of its own where NCCL leaves that open. That cannot deadlock:
// of all unfinished steps the first is under way at every rank that takes part in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nccl.h>

namespace programs {

enum class Kind : uint8_t {
  kMessage,  ///< from `root` to `peer`
  kAllToAll,
  kGather,
  kScatter,
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
};

struct Operation {
  Kind kind = Kind::kMessage;
  int number = 0;  ///< unique in the program: names the contents
  int communicator = 0;
  int root = 0, peer = 0;  ///< ranks of the communicator
  uint64_t count = 0;      ///< elements, of one block where there are several
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;

  /// Made of messages by NCCL, with which it shares their order.
  bool made_of_messages() const { return kind <= Kind::kScatter; }
  std::string describe() const;
};

enum class Action : uint8_t { kMake, kSplit, kShrink, kGroup, kEnd };
enum class Ending : uint8_t { kDestroy, kFinalize, kAbort };

/// New communicator: its number and its members, world ranks in the order of their ranks there.
struct Birth {
  int number = 0;
  std::vector<int> members;
};

struct Step {
  Action action = Action::kGroup;
  int communicator = 0;         ///< split, shrunk or ended
  std::vector<int> color, key;  ///< kSplit: by rank of the parent; color -1: in none
  std::vector<int> excluded;    ///< kShrink: ranks of the parent
  std::vector<Birth> births;    ///< of kMake one
  int unique_id = 0;            ///< kMake
  Ending ending = Ending::kDestroy;
  std::vector<Operation> operations;  ///< kGroup
  bool barrier = false;  ///< nothing before it is unfinished, at any rank, when it is over
  int times = 1;         ///< above 1: all ranks do it that often, each by a graph or one by one
};

struct Program {
  std::vector<Step> steps;
  std::vector<std::vector<int>> members;  ///< of all communicators there ever are; 0 is the world
  int unique_ids = 1;
};

Program generate(uint64_t seed, int ranks);

/// Value of element `index` that world rank `rank` puts into an operation; small where it is
/// reduced, so that every type holds every result.
int64_t input(uint64_t seed, const Operation& operation, int rank, uint64_t index);

}  // namespace programs
