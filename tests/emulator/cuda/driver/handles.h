// SPDX-License-Identifier: Apache-2.0
//
// Live objects by handle. A handle is a number that is never given out twice and is no valid
// address, so that a stale or foreign handle is always recognised and one that is dereferenced
// faults at once.
//
// Thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace railyard::emulator {

template <typename Handle, typename T>
class HandleTable {
 public:
  /// `kind` (1 … 100) keeps the handles of different tables apart.
  explicit HandleTable(uint64_t kind) : next_((kind << 56) + kStep) {}

  Handle insert(std::shared_ptr<T> object) {
    std::unique_lock lock(mutex_);
    uint64_t key = next_;
    next_ += kStep;
    objects_.emplace(key, std::move(object));
    return std::bit_cast<Handle>(key);
  }

  /// Null if there is no such object.
  std::shared_ptr<T> find(Handle handle) const {
    std::shared_lock lock(mutex_);
    auto found = objects_.find(std::bit_cast<uint64_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  /// Removes and returns the object; null if there is none.
  std::shared_ptr<T> take(Handle handle) {
    std::unique_lock lock(mutex_);
    auto found = objects_.find(std::bit_cast<uint64_t>(handle));
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  /// Removes and returns all objects that `wanted` accepts.
  template <typename Predicate>
  std::vector<std::shared_ptr<T>> take_if(Predicate wanted) {
    std::vector<std::shared_ptr<T>> taken;
    std::unique_lock lock(mutex_);
    for (auto it = objects_.begin(); it != objects_.end();) {
      if (wanted(*it->second)) {
        taken.push_back(std::move(it->second));
        it = objects_.erase(it);
      } else {
        ++it;
      }
    }
    return taken;
  }

 private:
  static constexpr uint64_t kStep = 16;
  mutable std::shared_mutex mutex_;
  uint64_t next_;
  std::unordered_map<uint64_t, std::shared_ptr<T>> objects_;
};

}  // namespace railyard::emulator
