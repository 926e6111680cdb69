// SPDX-License-Identifier: Apache-2.0
// Numbers that depend on a seed and on nothing else: not on the rank that draws them, nor on the
// order of drawing elsewhere. A name makes a stream of its own.
#pragma once

#include <cstdint>
#include <string_view>

namespace moe {

class Random final {
 public:
  Random(std::uint64_t seed, std::string_view name) : state_(mix(seed)) {
    for (const char c : name) state_ = mix(state_ ^ static_cast<unsigned char>(c));
  }

  std::uint64_t next() { return mix(state_++); }
  // In [0, 1), on a grid of 2^-24, so exact as a float.
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24F; }
  // In [0, limit). The bias for limits far below 2^64 does not matter here.
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

 private:
  // A bijection that scatters neighbouring inputs (the finaliser of splitmix64).
  static std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }

  std::uint64_t state_;
};

}  // namespace moe
