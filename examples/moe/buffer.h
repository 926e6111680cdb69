// SPDX-License-Identifier: Apache-2.0
// An owned array in page-locked host memory. Both a stream's host functions and a GPU may touch it,
// so the same program computes on the CPU in a cluster without GPUs and beside real ones.
#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime_api.h>

#include "compute.h"
#include "cuda_check.h"

namespace moe {

template <typename T>
class Buffer final {
 public:
  Buffer() = default;
  explicit Buffer(Index size) { reserve(size); }
  ~Buffer() { release(); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&&) = delete;

  // Makes room for `size` elements; what was there before is lost if it grows.
  // REQUIRES: no work that uses the buffer is queued on a stream.
  void reserve(Index size) {
    if (size <= size_) return;
    release();
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, static_cast<std::size_t>(size) * sizeof(T), cudaHostAllocPortable),
          "cudaHostAlloc");
    data_ = static_cast<T*>(memory);
    size_ = size;
  }

  T* get() const { return data_; }
  T& operator[](Index i) const { return data_[i]; }
  Index size() const { return size_; }

 private:
  void release() {
    if (data_ != nullptr) cudaFreeHost(data_);
    data_ = nullptr;
    size_ = 0;
  }

  T* data_ = nullptr;
  Index size_ = 0;
};

}  // namespace moe
