// SPDX-License-Identifier: Apache-2.0
#include "buffers.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <cuda_runtime_api.h>

#include "require.h"

namespace property {
namespace {

constexpr uint64_t kGuardBytes = 64;
constexpr int kGuard = 0xa5;

uint64_t word_at(uint64_t key, uint64_t index) { return scramble(key + index); }

}  // namespace

uint64_t Content::key() const {
  const auto word = [](int value) { return static_cast<uint64_t>(value); };
  return hash({seed, word(exchange), word(creation), word(src), word(dst), word(number)});
}

std::string Content::describe() const {
  char text[200];
  std::snprintf(
      text, sizeof text,
      "seed %llu, exchange %d, communicator %d, %s %d from rank %d to rank %d, %llu bytes",
      static_cast<unsigned long long>(seed), exchange, creation,
      number < 0 ? "all-to-all" : "message", number, src, dst,
      static_cast<unsigned long long>(bytes));
  return text;
}

void fill(const Content& content, std::byte* to) {
  const uint64_t key = content.key();
  for (uint64_t at = 0; at < content.bytes; at += sizeof(uint64_t)) {
    const uint64_t word = word_at(key, at / sizeof(uint64_t));
    std::memcpy(to + at, &word, std::min<uint64_t>(sizeof word, content.bytes - at));
  }
}

uint64_t first_difference(const Content& content, const std::byte* at) {
  const uint64_t key = content.key();
  for (uint64_t offset = 0; offset < content.bytes; offset += sizeof(uint64_t)) {
    const uint64_t word = word_at(key, offset / sizeof(uint64_t));
    const uint64_t here = std::min<uint64_t>(sizeof word, content.bytes - offset);
    if (std::memcmp(at + offset, &word, here) == 0) continue;
    const auto* expected = reinterpret_cast<const std::byte*>(&word);
    return offset + static_cast<uint64_t>(
                        std::mismatch(expected, expected + here, at + offset).first - expected);
  }
  return content.bytes;
}

Arena::~Arena() {
  cudaFree(device_);
  cudaFreeHost(host_);
}

void Arena::clear() {
  buffers_.clear();
  bytes_ = 0;
}

uint64_t Arena::add(Random& random, std::vector<Content> contents) {
  uint64_t at = bytes_ + kGuardBytes;
  at = at / 16 * 16 + 16 + (random.chance(0.5) ? random.below(16) : 0);
  const uint64_t start = at;
  for (Content& content : contents) {
    buffers_.push_back({at, content});
    at += content.bytes;
  }
  bytes_ = at;
  return start;
}

void Arena::allocate() {
  const uint64_t needed = bytes_ + kGuardBytes;
  if (needed > capacity_) {
    REQUIRE(cudaFree(device_));
    REQUIRE(cudaFreeHost(host_));
    capacity_ = needed + needed / 2;
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&device_), capacity_));
    REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&host_), capacity_));
  }
  std::memset(host_, kGuard, needed);
  REQUIRE(cudaMemset(device_, kGuard, needed));
  REQUIRE(cudaDeviceSynchronize());
}

void Arena::fill_host() {
  for (const Buffer& buffer : buffers_) fill(buffer.content, host_ + buffer.offset);
}

std::string Arena::check(bool spoil) {
  const uint64_t total = bytes_ + kGuardBytes;
  REQUIRE(cudaMemcpy(host_, device_, total, cudaMemcpyDeviceToHost));
  if (spoil) host_[bytes_ > 0 ? bytes_ - 1 : 0] ^= std::byte{1};
  uint64_t at = 0;
  const auto guard_end = [&](uint64_t until) {
    while (at < until && host_[at] == std::byte{kGuard}) ++at;
    return at == until;
  };
  for (const Buffer& buffer : buffers_) {
    if (!guard_end(buffer.offset)) {
      return "guard byte written " + std::to_string(buffer.offset - at) +
             " bytes before: " + buffer.content.describe();
    }
    const uint64_t wrong = first_difference(buffer.content, host_ + buffer.offset);
    if (wrong != buffer.content.bytes) {
      char value[40];
      std::snprintf(value, sizeof value, "0x%02x",
                    static_cast<unsigned>(host_[buffer.offset + wrong]));
      return "byte " + std::to_string(wrong) + " is " + value + ": " + buffer.content.describe();
    }
    at = buffer.offset + buffer.content.bytes;
  }
  if (!guard_end(total)) return "guard byte written after the last buffer";
  return {};
}

}  // namespace property
