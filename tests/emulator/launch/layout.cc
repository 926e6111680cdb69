// SPDX-License-Identifier: Apache-2.0
#include "layout.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace railyard::emulator {
namespace {

constexpr int kMostRanks = 4096;

std::vector<int> block_order(const std::vector<int>& gpus) {
  std::vector<int> nodes;
  for (size_t node = 0; node < gpus.size(); ++node) {
    nodes.insert(nodes.end(), static_cast<size_t>(gpus[node]), static_cast<int>(node));
  }
  return nodes;
}

std::vector<int> cyclic_order(std::vector<int> gpus) {
  std::vector<int> nodes;
  for (bool more = true; more;) {
    more = false;
    for (size_t node = 0; node < gpus.size(); ++node) {
      if (gpus[node] == 0) continue;
      --gpus[node];
      nodes.push_back(static_cast<int>(node));
      more = true;
    }
  }
  return nodes;
}

std::vector<int> count_ranks(const std::vector<int>& nodes) {
  std::vector<int> counts;
  for (int node : nodes) {
    if (counts.size() <= static_cast<size_t>(node)) counts.resize(static_cast<size_t>(node) + 1);
    ++counts[static_cast<size_t>(node)];
  }
  return counts;
}

}  // namespace

std::optional<std::vector<int>> parse_numbers(const std::string& text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  for (;;) {
    int number = 0;
    auto [next, failure] = std::from_chars(at, end, number);
    if (failure != std::errc{} || number < 0) return std::nullopt;
    numbers.push_back(number);
    if (next == end) return numbers;
    if (*next != ',') return std::nullopt;
    at = next + 1;
  }
}

std::vector<Place> place_ranks(const std::vector<int>& gpus, const std::string& order,
                               std::string* error) {
  for (int count : gpus) {
    if (count >= 1 && count <= kMostRanks) continue;
    *error = "every node needs between 1 and " + std::to_string(kMostRanks) + " GPUs";
    return {};
  }
  std::vector<int> nodes;
  if (order == "block") {
    nodes = block_order(gpus);
  } else if (order == "cyclic") {
    nodes = cyclic_order(gpus);
  } else if (auto list = parse_numbers(order)) {
    if (*std::max_element(list->begin(), list->end()) >= kMostRanks) {
      *error = "node numbers in --order must be below " + std::to_string(kMostRanks);
      return {};
    }
    nodes = *list;
  } else {
    *error = "--order must be block, cyclic or the node of every rank as in 0,1,1,0; got " + order;
    return {};
  }
  std::vector<int> counts = count_ranks(nodes);
  if (std::find(counts.begin(), counts.end(), 0) != counts.end()) {
    *error = "--order leaves a node without ranks: number the nodes from 0 without gaps";
    return {};
  }
  if (!gpus.empty() && counts != gpus) {
    *error = "--order does not give every node as many ranks as it has GPUs";
    return {};
  }
  if (nodes.empty() || nodes.size() > kMostRanks) {
    *error = "the number of ranks must be between 1 and " + std::to_string(kMostRanks);
    return {};
  }
  std::vector<int> seen(counts.size());
  std::vector<Place> places;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    auto node = static_cast<size_t>(nodes[rank]);
    places.push_back(Place{static_cast<int>(rank), nodes[rank], seen[node]++, counts[node]});
  }
  return places;
}

}  // namespace railyard::emulator
