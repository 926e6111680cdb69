// SPDX-License-Identifier: Apache-2.0
//
// An owned file descriptor, closed when its owner goes.
//
// A process that forks without exec leaves its child copies of all descriptors: peers would then
// not notice the parent's death while the child lives. So every owned descriptor is on record, and
// close_in_children() makes children close them (fork.h).
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace railyard {

/// Which descriptors are owned; a bit each. Higher ones than these 65536 are not recorded.
class OwnedFds {
 public:
  static void add(int fd) {
    if (recorded(fd)) word(fd).fetch_or(bit(fd), std::memory_order_relaxed);
  }
  static void remove(int fd) {
    if (recorded(fd)) word(fd).fetch_and(~bit(fd), std::memory_order_relaxed);
  }
  /// Calls only what is safe in a child of a process with threads.
  static void close_all() {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t left = words_[i].exchange(0); left != 0; left &= left - 1) {
        ::close(static_cast<int>(i * 64) + __builtin_ctzll(left));
      }
    }
  }

 private:
  static bool recorded(int fd) { return fd >= 0 && static_cast<size_t>(fd) < 64 * words_.size(); }
  static std::atomic<uint64_t>& word(int fd) { return words_[static_cast<size_t>(fd) / 64]; }
  static uint64_t bit(int fd) { return uint64_t{1} << (static_cast<size_t>(fd) % 64); }

  static inline std::array<std::atomic<uint64_t>, 1024> words_{};
};

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) { OwnedFds::add(fd); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int release() {
    OwnedFds::remove(fd_);
    return std::exchange(fd_, -1);
  }
  void reset(int fd = -1) {
    if (fd_ >= 0) {
      OwnedFds::remove(fd_);  // first: once closed, the number may be somebody else's
      ::close(fd_);
    }
    fd_ = fd;
    OwnedFds::add(fd);
  }

 private:
  int fd_ = -1;
};

}  // namespace railyard
