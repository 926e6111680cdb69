// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "random.h"

namespace property {
namespace {

constexpr int kMaxSteps = 3;

Creation from_unique_id(Random& random, int ranks, bool permute) {
  Creation creation;
  std::vector<int> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  if (permute) random.shuffle(members);
  creation.communicators.push_back(members);
  return creation;
}

/// A split into one to three colours, in which some ranks take no part.
Creation split(Random& random, int parent, const std::vector<int>& parent_members) {
  Creation creation;
  creation.parent = parent;
  creation.color.resize(parent_members.size());
  creation.key.resize(parent_members.size());
  const int colors = random.range(1, 3);
  std::map<int, std::vector<int>> groups;
  for (int rank : parent_members) {  // in order of parent rank, which breaks ties between keys
    const auto at = static_cast<size_t>(rank);
    creation.color[at] = random.chance(0.15) ? -1 : random.range(0, colors - 1);
    creation.key[at] = random.range(0, 3);
    if (creation.color[at] >= 0) groups[creation.color[at]].push_back(rank);
  }
  for (auto& [color, members] : groups) {
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return creation.key[static_cast<size_t>(a)] < creation.key[static_cast<size_t>(b)];
    });
    creation.communicators.push_back(members);
  }
  return creation;
}

/// Spends what an exchange may move in all.
class Budget {
 public:
  explicit Budget(uint64_t bytes) : left_(bytes) {}
  uint64_t spend(uint64_t bytes) {
    if (bytes > left_) bytes %= left_ + 1;
    left_ -= bytes;
    return bytes;
  }
  uint64_t left() const { return left_; }

 private:
  uint64_t left_;
};

/// How often the exchange is done.
int plan_times(uint64_t seed, int number, const std::vector<Creation>& creations,
               const std::vector<int>& used, Captures captures) {
  Random random{seed, 6, static_cast<uint64_t>(number)};
  const bool whole = std::all_of(used.begin(), used.end(), [&](int creation) {
    return creations[static_cast<size_t>(creation)].parent < 0;
  });
  const bool may = captures == Captures::kAll || (captures == Captures::kWhole && whole);
  return may && random.chance(0.4) ? random.range(2, 4) : 1;
}

std::vector<Message> plan_messages(Random& random, const std::vector<int>& members, int steps,
                                   const Limits& limits, Budget& budget) {
  std::vector<bool> silent(members.size(), false);
  if (random.chance(0.3)) {
    for (size_t i = 0; i < silent.size(); ++i) silent[i] = random.chance(0.4);
  }
  std::vector<Message> messages;
  for (size_t src = 0; src < members.size(); ++src) {
    for (size_t dst = 0; dst < members.size(); ++dst) {
      if (silent[src] || silent[dst]) continue;
      const bool zero = random.chance(0.5);
      if (zero && random.chance(0.5)) continue;
      std::vector<int> of_step(static_cast<size_t>(zero ? 1 : random.range(1, 3)));
      for (int& step : of_step) step = random.range(0, steps - 1);
      std::sort(of_step.begin(), of_step.end());
      for (int step : of_step) {
        messages.push_back({members[src], members[dst], step,
                            zero ? 0 : random.log_uniform(limits.message_bytes)});
      }
    }
  }
  // Who gets less when the budget runs out is a matter of chance too.
  std::vector<size_t> order(messages.size());
  std::iota(order.begin(), order.end(), size_t{0});
  random.shuffle(order);
  for (size_t i : order) messages[i].bytes = budget.spend(messages[i].bytes);
  return messages;
}

}  // namespace

std::vector<Creation> plan_creations(uint64_t seed, int ranks) {
  Random random{seed, 0};
  std::vector<Creation> creations{from_unique_id(random, ranks, false)};
  if (random.chance(0.4)) creations.push_back(from_unique_id(random, ranks, true));
  const int splits = random.range(0, 2);
  for (int i = 0; i < splits; ++i) {
    const int parent = random.range(0, std::min<int>(1, static_cast<int>(creations.size()) - 1));
    const Creation& from = creations[static_cast<size_t>(parent)];
    if (from.parent >= 0) continue;  // a split of a split need not have all ranks
    creations.push_back(split(random, parent, from.communicators.front()));
  }
  return creations;
}

Exchange plan_exchange(uint64_t seed, int number, const std::vector<Creation>& creations,
                       const Limits& limits) {
  Random random{seed, 1, static_cast<uint64_t>(number)};
  Exchange exchange;
  exchange.steps = random.range(1, kMaxSteps);
  std::vector<int> used(creations.size());
  std::iota(used.begin(), used.end(), 0);
  random.shuffle(used);
  used.resize(std::min<size_t>(used.size(), random.chance(0.3) ? 2 : 1));

  exchange.times = plan_times(seed, number, creations, used, limits.captures);
  Budget budget(limits.exchange_bytes / static_cast<uint64_t>(exchange.times));
  for (int creation : used) {
    const auto& communicators = creations[static_cast<size_t>(creation)].communicators;
    for (size_t c = 0; c < communicators.size(); ++c) {
      const std::vector<int>& members = communicators[c];
      Part part;
      part.creation = creation;
      part.communicator = static_cast<int>(c);
      part.all_to_all = random.chance(0.15);
      if (part.all_to_all) {
        const uint64_t pairs = members.size() * members.size();
        const uint64_t most = std::min(limits.message_bytes, budget.left() / pairs);
        part.all_to_all_step = random.range(0, exchange.steps - 1);
        part.all_to_all_bytes = std::min(random.log_uniform(most), most);
        budget.spend(part.all_to_all_bytes * pairs);
      }
      if (!part.all_to_all || random.chance(0.3)) {
        part.messages = plan_messages(random, members, exchange.steps, limits, budget);
      }
      exchange.parts.push_back(std::move(part));
    }
  }
  return exchange;
}

}  // namespace property
