// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), to compare the parameters of two runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace moe {

class Sha256 final {
 public:
  using Digest = std::array<std::uint8_t, 32>;

  void update(const void* data, std::size_t size);
  Digest finish();  // the object is used up afterwards

  static std::string hex(const Digest& digest);

 private:
  void compress();

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_ = {};
  std::size_t fill_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace moe
