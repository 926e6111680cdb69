// SPDX-License-Identifier: Apache-2.0
//
// Runs the ranks of a communicator as threads of one process, one device each. Which devices share
// a node says EMULATOR_HOSTIDS.
//
//   World(4).run([](Rank& rank) { … rank.comm … rank.stream … });
#pragma once

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>

#define ASSERT_NCCL(call) ASSERT_EQ((call), ncclSuccess) << ncclGetLastError(nullptr)
#define EXPECT_NCCL(call) EXPECT_EQ((call), ncclSuccess) << ncclGetLastError(nullptr)
#define ASSERT_CUDA(call) ASSERT_EQ((call), CUDA_SUCCESS)
#define EXPECT_CUDA(call) EXPECT_EQ((call), CUDA_SUCCESS)

namespace railyard::emulator {

/// Device memory, which host code may touch: the emulated GPU shares the process's memory.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count, T fill = T()) : count_(count) {
    CUdeviceptr memory = 0;
    EXPECT_CUDA(::cuMemAlloc(&memory, (count + 1) * sizeof(T)));
    data_ = reinterpret_cast<T*>(memory);
    std::fill_n(data_, count, fill);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(other.count_) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_ != nullptr) ::cuMemFree(reinterpret_cast<CUdeviceptr>(data_));
  }

  T* data() { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  std::vector<T> copy() const { return std::vector<T>(data_, data_ + count_); }

 private:
  T* data_ = nullptr;
  size_t count_;
};

/// A device made current in this thread, and a stream on it.
struct DeviceThread {
  explicit DeviceThread(int number) : device(number) {
    EXPECT_CUDA(::cuInit(0));
    EXPECT_CUDA(::cuDevicePrimaryCtxRetain(&context, device));
    EXPECT_CUDA(::cuCtxSetCurrent(context));
    EXPECT_CUDA(::cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;
  ~DeviceThread() {
    EXPECT_CUDA(::cuStreamDestroy(stream));
    EXPECT_CUDA(::cuDevicePrimaryCtxRelease(device));
  }

  int device;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
};

struct Rank : DeviceThread {
  Rank(int number, int count) : DeviceThread(number), rank(number), ranks(count) {}
  void synchronize() { ASSERT_CUDA(::cuStreamSynchronize(stream)); }

  int rank;
  int ranks;
  ncclComm_t comm = nullptr;
};

class World {
 public:
  explicit World(int ranks) : ranks_(ranks) {}

  /// Destroys each communicator that `body` leaves in its rank, or aborts it if it has failed.
  void run(const std::function<void(Rank&)>& body) {
    ncclUniqueId id;
    ASSERT_NCCL(ncclGetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        Rank rank(r, ranks_);
        ASSERT_NCCL(ncclCommInitRank(&rank.comm, ranks_, id, r));
        body(rank);
        ncclResult_t state = ncclSuccess;
        if (rank.comm != nullptr) ncclCommGetAsyncError(rank.comm, &state);
        EXPECT_NCCL(state == ncclSuccess ? ncclCommDestroy(rank.comm) : ncclCommAbort(rank.comm));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const int ranks_;
};

}  // namespace railyard::emulator
