// SPDX-License-Identifier: Apache-2.0
//
// How values become bytes on a socket and come back: little-endian, one after the other, nothing
// padded. Never a raw struct: the two ends may be built by different compilers.
//
//   wire::Writer out;                       wire::Reader in(bytes);
//   out.u32(rank);                          const uint32_t rank = in.u32();
//   out.text(host);                         const std::string host = in.text();
//   send(out.bytes());                      if (!in.complete()) refuse();
//
// A Reader never reads past its bytes: the first read that does not fit makes it fail for good and
// yields zero or nothing from then on. So decoders check once, at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace railyard::wire {

using Bytes = std::vector<std::byte>;

class Writer {
 public:
  void u8(uint8_t value) { number(value, 1); }
  void u16(uint16_t value) { number(value, 2); }
  void u32(uint32_t value) { number(value, 4); }
  void u64(uint64_t value) { number(value, 8); }
  void i32(int32_t value) { u32(static_cast<uint32_t>(value)); }
  void boolean(bool value) { u8(value ? 1 : 0); }
  /// As they are, without a length.
  void raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  /// 32 bits of length, then the bytes. REQUIRES: less than 4 GiB.
  void blob(std::span<const std::byte> bytes) {
    u32(static_cast<uint32_t>(bytes.size()));
    raw(bytes);
  }
  void text(std::string_view value) { blob(std::as_bytes(std::span(value.data(), value.size()))); }

  const Bytes& bytes() const { return bytes_; }
  Bytes take() { return std::move(bytes_); }

 private:
  void number(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }

  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  int32_t i32() { return static_cast<int32_t>(u32()); }
  /// Anything but 0 and 1 is a failure.
  bool boolean() {
    const uint8_t value = u8();
    if (value > 1) fail();
    return value == 1;
  }
  /// The next `count` bytes, part of what the Reader was given.
  std::span<const std::byte> raw(size_t count) {
    if (failed_ || count > left_.size()) {
      fail();
      return {};
    }
    const auto bytes = left_.first(count);
    left_ = left_.subspan(count);
    return bytes;
  }
  std::span<const std::byte> blob() { return raw(u32()); }
  std::string text() {
    const auto bytes = blob();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  /// A count of things that take at least `least_bytes` each: cannot exceed what is left, so that a
  /// hostile count never becomes a large allocation.
  uint32_t count(size_t least_bytes) {
    const uint32_t value = u32();
    if (least_bytes == 0 || value > left_.size() / least_bytes) {
      if (value != 0) fail();
      return failed_ ? 0 : value;
    }
    return value;
  }

  void fail() {
    failed_ = true;
    left_ = {};
  }
  bool ok() const { return !failed_; }
  /// Everything was there and nothing is left over.
  bool complete() const { return !failed_ && left_.empty(); }

 private:
  uint64_t number(size_t width) {
    uint64_t value = 0;
    const auto bytes = raw(width);
    for (size_t i = 0; i < bytes.size(); ++i)
      value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
    return value;
  }

  std::span<const std::byte> left_;
  bool failed_ = false;
};

}  // namespace railyard::wire
