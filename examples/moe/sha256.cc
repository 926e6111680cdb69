// SPDX-License-Identifier: Apache-2.0
// SHA-256. The round constants are computed from their definition: the first 32 bits of the
// fractional parts of the cube roots of the first 64 primes.
#include "sha256.h"

#include <algorithm>
#include <bit>

namespace moe {
namespace {

using Constants = std::array<std::uint32_t, 64>;

constexpr bool is_prime(std::uint64_t n) {
  for (std::uint64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

// floor(2^32 cbrt(prime)) modulo 2^32, by bisection over exact 128-bit cubes.
constexpr std::uint32_t root_fraction(std::uint64_t prime) {
  __extension__ using Wide = unsigned __int128;
  std::uint64_t low = 0;
  std::uint64_t high = std::uint64_t{1} << 35;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    // middle^3 <= prime 2^96, with middle < 2^35 and so middle^3 < 2^105
    if (Wide{middle} * middle * middle <= Wide{prime} << 96) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return static_cast<std::uint32_t>(low);
}

constexpr Constants make_constants() {
  Constants constants{};
  std::uint64_t prime = 2;
  for (std::uint32_t& constant : constants) {
    while (!is_prime(prime)) ++prime;
    constant = root_fraction(prime++);
  }
  return constants;
}

constexpr Constants kConstants = make_constants();

}  // namespace

void Sha256::update(const void* data, std::size_t size) {
  const auto* next = static_cast<const std::uint8_t*>(data);
  bytes_ += size;
  while (size > 0) {
    const std::size_t taken = std::min(size, block_.size() - fill_);
    std::copy_n(next, taken, block_.data() + fill_);
    fill_ += taken;
    next += taken;
    size -= taken;
    if (fill_ == block_.size()) compress();
  }
}

Sha256::Digest Sha256::finish() {
  const std::uint64_t bits = bytes_ * 8;
  const std::uint8_t one = 0x80;
  const std::uint8_t zero = 0;
  update(&one, 1);
  while (fill_ != block_.size() - sizeof(bits)) update(&zero, 1);
  for (int shift = 56; shift >= 0; shift -= 8) {
    const auto byte = static_cast<std::uint8_t>(bits >> shift);
    update(&byte, 1);
  }
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

std::string Sha256::hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

void Sha256::compress() {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t byte = 0; byte < 4; ++byte) w[i] = (w[i] << 8) | block_[4 * i + byte];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t near = w[i - 2];
    const std::uint32_t far = w[i - 15];
    w[i] = w[i - 16] + (std::rotr(far, 7) ^ std::rotr(far, 18) ^ (far >> 3)) + w[i - 7] +
           (std::rotr(near, 17) ^ std::rotr(near, 19) ^ (near >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const std::uint32_t t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + kConstants[i] + w[i];
    const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
  fill_ = 0;
}

}  // namespace moe
