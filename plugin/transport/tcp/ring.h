// SPDX-License-Identifier: Apache-2.0
//
// A queue that grows to the largest backlog it has seen and then allocates no more.
#pragma once

#include <cstddef>
#include <vector>

namespace railyard::transport::tcp {

template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  /// REQUIRES: index < size().
  const T& operator[](size_t index) const { return items_[(head_ + index) & (items_.size() - 1)]; }

  void push(const T& item) {
    if (size_ == items_.size()) grow();
    items_[(head_ + size_++) & (items_.size() - 1)] = item;
  }
  /// REQUIRES: !empty().
  T pop() {
    const T item = items_[head_];
    head_ = (head_ + 1) & (items_.size() - 1);
    --size_;
    return item;
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 16 : items_.size() * 2);
    for (size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
    items_.swap(larger);
    head_ = 0;
  }

  std::vector<T> items_;  ///< a power of two of them
  size_t head_ = 0, size_ = 0;
};

}  // namespace railyard::transport::tcp
