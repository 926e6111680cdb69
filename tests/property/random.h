// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same on every machine and for every rank: all choices of the
// exchange test follow from one seed and from names that tell the choices apart.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace property {

/// A bijection of 64-bit words that spreads every input bit over all output bits.
constexpr uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}

constexpr uint64_t hash(std::initializer_list<uint64_t> words) {
  uint64_t state = 0x243f6a8885a308d3ULL;
  for (uint64_t word : words) state = scramble(state ^ word) + 0x13198a2e03707344ULL;
  return state;
}

class Random {
 public:
  explicit Random(std::initializer_list<uint64_t> names) : key_(hash(names)) {}

  uint64_t next() { return scramble(key_ + ++count_ * 0x9e3779b97f4a7c15ULL); }
  /// 0 … limit - 1. REQUIRES: limit > 0.
  uint64_t below(uint64_t limit) { return next() % limit; }
  int range(int low, int high) {
    return low + static_cast<int>(below(static_cast<uint64_t>(high - low + 1)));
  }
  double real() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return real() < probability; }
  /// Every order of magnitude from 0 to `max` equally likely.
  uint64_t log_uniform(uint64_t max) {
    return static_cast<uint64_t>(std::expm1(real() * std::log1p(static_cast<double>(max) + 1)));
  }

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t key_;
  uint64_t count_ = 0;
};

}  // namespace property
