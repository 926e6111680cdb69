// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <algorithm>
#include <numeric>

#include "random.h"

namespace programs {
namespace {

using property::Random;

constexpr int kMostCommunicators = 8;
constexpr uint64_t kMostElements = 1 << 16;

class Generator {
 public:
  Generator(uint64_t seed, int ranks) : random_({seed, 1}) {
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    Step make;
    make.action = Action::kMake;
    make.births = {born(all)};
    program_.steps.push_back(make);
  }

  Program run() {
    const int steps = random_.range(12, 30);
    for (int i = 0; i < steps; ++i) {
      const double choice = random_.real();
      if (choice < 0.12) {
        split();
      } else if (choice < 0.17) {
        make();
      } else if (choice < 0.22) {
        shrink();
      } else if (choice < 0.30) {
        end_one();
      } else {
        group();
      }
    }
    while (!alive_.empty()) end(alive_.size() - 1);
    return std::move(program_);
  }

 private:
  const std::vector<int>& members(int communicator) const {
    return program_.members[static_cast<size_t>(communicator)];
  }

  Birth born(std::vector<int> members) {
    Birth birth{static_cast<int>(program_.members.size()), std::move(members)};
    program_.members.push_back(birth.members);
    alive_.push_back(birth.number);
    return birth;
  }

  int pick() { return alive_[random_.below(alive_.size())]; }
  bool room() const { return alive_.size() < kMostCommunicators; }

  void split() {
    Step step;
    step.action = Action::kSplit;
    step.communicator = pick();
    if (!room()) return;
    const std::vector<int> parent = members(step.communicator);
    const int colors = random_.range(1, 2);
    for (size_t i = 0; i < parent.size(); ++i) {
      step.color.push_back(random_.chance(0.15) ? -1 : random_.range(0, colors - 1));
      step.key.push_back(random_.chance(0.5) ? 0 : random_.range(-3, 3));
    }
    for (int color = 0; color < colors; ++color) {
      std::vector<std::pair<int, int>> order;  // key, rank of the parent
      for (size_t i = 0; i < parent.size(); ++i) {
        if (step.color[i] == color) order.emplace_back(step.key[i], static_cast<int>(i));
      }
      std::sort(order.begin(), order.end());
      std::vector<int> child;
      for (const auto& [key, rank] : order) child.push_back(parent[static_cast<size_t>(rank)]);
      if (!child.empty()) step.births.push_back(born(child));
    }
    program_.steps.push_back(step);
  }

  void make() {
    if (!room()) return;
    Step step;
    step.action = Action::kMake;
    step.unique_id = program_.unique_ids++;
    std::vector<int> chosen = members(0);
    random_.shuffle(chosen);
    chosen.resize(random_.below(chosen.size()) + 1);
    step.births = {born(chosen)};
    program_.steps.push_back(step);
  }

  void shrink() {
    Step step;
    step.action = Action::kShrink;
    step.communicator = pick();
    const std::vector<int> parent = members(step.communicator);
    if (!room() || parent.size() < 2) return;
    std::vector<int> ranks(parent.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    random_.shuffle(ranks);
    ranks.resize(random_.below(parent.size() - 1) + 1);
    step.excluded = ranks;
    std::vector<int> rest;
    for (size_t i = 0; i < parent.size(); ++i) {
      if (std::find(ranks.begin(), ranks.end(), static_cast<int>(i)) == ranks.end()) {
        rest.push_back(parent[i]);
      }
    }
    step.births = {born(rest)};
    program_.steps.push_back(step);
  }

  void end_one() {
    if (alive_.size() > 1) end(1 + random_.below(alive_.size() - 1));
  }

  void end(size_t place) {
    Step step;
    step.action = Action::kEnd;
    step.communicator = alive_[place];
    const double choice = random_.real();
    step.ending = choice < 0.4   ? Ending::kDestroy
                  : choice < 0.7 ? Ending::kFinalize
                                 : Ending::kAbort;
    if (step.communicator == 0) step.ending = Ending::kDestroy;
    if (step.ending == Ending::kAbort) barrier();
    alive_.erase(alive_.begin() + static_cast<ptrdiff_t>(place));
    program_.steps.push_back(step);
  }

  /// Who aborts must know that nobody needs anything from him any more.
  void barrier() {
    Step step;
    step.barrier = true;
    step.operations.push_back(operation(Kind::kAllReduce, 0, 1));
    program_.steps.push_back(step);
  }

  Operation operation(Kind kind, int communicator, uint64_t count) {
    static constexpr ncclDataType_t kTypes[] = {ncclInt8,  ncclUint8,  ncclInt32,   ncclUint32,
                                                ncclInt64, ncclUint64, ncclFloat32, ncclFloat64};
    static constexpr ncclRedOp_t kReductions[] = {ncclSum, ncclProd, ncclMax, ncclMin};
    const auto ranks = members(communicator).size();
    Operation result;
    result.kind = kind;
    result.number = operations_++;
    result.communicator = communicator;
    result.root = static_cast<int>(random_.below(ranks));
    result.peer = static_cast<int>(random_.below(ranks));
    result.count = count;
    result.type = kTypes[random_.below(std::size(kTypes))];
    result.reduction = kReductions[random_.below(std::size(kReductions))];
    return result;
  }

  uint64_t count(uint64_t most) { return random_.chance(0.15) ? 0 : random_.log_uniform(most); }

  void add_to(Step& step, int communicator) {
    const auto ranks = static_cast<uint64_t>(members(communicator).size());
    if (random_.chance(0.6)) {  // messages; not all ranks need have any
      const uint64_t messages = random_.below(3 * ranks) + 1;
      for (uint64_t i = 0; i < messages; ++i) {
        step.operations.push_back(operation(Kind::kMessage, communicator, count(kMostElements)));
      }
    }
    if (random_.chance(0.5)) {
      const auto kind = static_cast<Kind>(
          random_.range(static_cast<int>(Kind::kAllToAll), static_cast<int>(Kind::kReduceScatter)));
      step.operations.push_back(operation(kind, communicator, count(kMostElements / ranks)));
    }
  }

  void group() {
    Step step;
    std::vector<int> chosen = alive_;
    random_.shuffle(chosen);
    chosen.resize(std::min<size_t>(chosen.size(), random_.below(3) + 1));
    for (int communicator : chosen) add_to(step, communicator);
    random_.shuffle(step.operations);
    if (random_.chance(0.25)) step.times = random_.range(2, 4);
    if (!step.operations.empty()) program_.steps.push_back(step);
  }

  Random random_;
  Program program_;
  std::vector<int> alive_;
  int operations_ = 0;
};

}  // namespace

std::string Operation::describe() const {
  static constexpr const char* kNames[] = {"message",   "all-to-all", "gather",
                                           "scatter",   "all-reduce", "reduce",
                                           "broadcast", "all-gather", "reduce-scatter"};
  return std::string(kNames[static_cast<size_t>(kind)]) + " " + std::to_string(number) +
         " on communicator " + std::to_string(communicator) + ", " + std::to_string(count) +
         " elements of type " + std::to_string(type);
}

Program generate(uint64_t seed, int ranks) { return Generator(seed, ranks).run(); }

int64_t input(uint64_t seed, const Operation& operation, int rank, uint64_t index) {
  const bool reduced = operation.kind == Kind::kAllReduce || operation.kind == Kind::kReduce ||
                       operation.kind == Kind::kReduceScatter;
  const uint64_t word = property::hash(
      {seed, static_cast<uint64_t>(operation.number), static_cast<uint64_t>(rank), index});
  return static_cast<int64_t>(word % (reduced ? 4 : 120));
}

}  // namespace programs
