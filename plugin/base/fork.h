// SPDX-License-Identifier: Apache-2.0
//
// What a forked child of the process inherits from railyard: nothing it could keep alive, and
// nothing that depends on threads and sockets which only its parent has.
#pragma once

#include <cstdint>
#include <mutex>

namespace railyard {

/// From now on, children made by fork() close every descriptor that a UniqueFd owns. Whatever holds
/// one is of no use there. Thread-safe; further calls do nothing.
void close_in_children();

/// Differs between a process and a child it forked after close_in_children(). Cheap; thread-safe.
uint32_t fork_generation();

/// The one T of each process, made at first use and never destroyed. What a child got from its
/// parent is left alone there: it may have been in use at the fork. Thread-safe.
template <typename T>
class PerProcess {
 public:
  template <typename Make>
  T& get(Make make) {
    const std::lock_guard lock(mutex_);
    if (value_ == nullptr || generation_ != fork_generation()) {
      value_ = make();
      generation_ = fork_generation();
    }
    return *value_;
  }

 private:
  std::mutex mutex_;
  T* value_ = nullptr;
  uint32_t generation_ = 0;
};

}  // namespace railyard
