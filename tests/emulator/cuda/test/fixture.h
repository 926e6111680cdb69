// SPDX-License-Identifier: Apache-2.0
//
// For the contract tests of the CUDA driver: they hold for the emulated driver and for NVIDIA's
// alike, whichever libcuda.so.1 the library path leads to. So they touch device memory through
// copies only.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

inline testing::AssertionResult succeeded(const char* expression, CUresult result) {
  if (result == CUDA_SUCCESS) return testing::AssertionSuccess();
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return testing::AssertionFailure()
         << expression << " is " << (name != nullptr ? name : std::to_string(result));
}
#define EXPECT_CUDA(expression) EXPECT_PRED_FORMAT1(succeeded, expression)
#define ASSERT_CUDA(expression) ASSERT_PRED_FORMAT1(succeeded, expression)

/// Device 0 with its primary context current.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA(cuInit(0));
    ASSERT_CUDA(cuDeviceGet(&device_, 0));
    ASSERT_CUDA(cuDevicePrimaryCtxRetain(&context_, device_));
    ASSERT_CUDA(cuCtxSetCurrent(context_));
  }
  void TearDown() override {
    EXPECT_CUDA(cuCtxSynchronize());
    EXPECT_CUDA(cuCtxSetCurrent(nullptr));
    EXPECT_CUDA(cuDevicePrimaryCtxRelease(device_));
  }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// Device memory that is read and written as a whole.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes) { EXPECT_CUDA(cuMemAlloc(&address_, bytes)); }
  ~Buffer() { EXPECT_CUDA(cuMemFree(address_)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  CUdeviceptr address() const { return address_; }
  size_t bytes() const { return bytes_; }
  void write(const std::vector<uint8_t>& content) const {
    EXPECT_CUDA(cuMemcpyHtoD(address_, content.data(), content.size()));
  }
  std::vector<uint8_t> read() const {
    std::vector<uint8_t> content(bytes_);
    EXPECT_CUDA(cuMemcpyDtoH(content.data(), address_, bytes_));
    return content;
  }

 private:
  CUdeviceptr address_ = 0;
  size_t bytes_;
};

/// Host memory that the driver allocated.
template <typename T>
class Pinned {
 public:
  explicit Pinned(size_t count) {
    EXPECT_CUDA(cuMemHostAlloc(&memory_, count * sizeof(T), CU_MEMHOSTALLOC_DEVICEMAP));
  }
  ~Pinned() { EXPECT_CUDA(cuMemFreeHost(memory_)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  T* get() const { return static_cast<T*>(memory_); }
  CUdeviceptr device() const {
    CUdeviceptr address = 0;
    EXPECT_CUDA(cuMemHostGetDevicePointer(&address, memory_, 0));
    return address;
  }

 private:
  void* memory_ = nullptr;
};

/// Holds a stream up until it is opened, at the latest when it goes out of scope.
class Gate {
 public:
  Gate() : word_(1) { store(0); }
  ~Gate() { open(); }

  void hold(CUstream stream) const {
    EXPECT_CUDA(cuStreamWaitValue32(stream, word_.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
    held_ = true;
  }
  void open() {
    store(1);
    // The word must outlive the waits for it.
    if (held_) {
      EXPECT_CUDA(cuCtxSynchronize());
    }
    held_ = false;
  }

 private:
  void store(uint32_t value) { std::atomic_ref<uint32_t>(*word_.get()).store(value); }

  Pinned<uint32_t> word_;
  mutable bool held_ = false;
};

class OwnStream {
 public:
  explicit OwnStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    EXPECT_CUDA(cuStreamCreate(&stream_, flags));
  }
  ~OwnStream() { EXPECT_CUDA(cuStreamDestroy(stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator CUstream() const { return stream_; }  // NOLINT: stands for it

 private:
  CUstream stream_ = nullptr;
};

class OwnEvent {
 public:
  explicit OwnEvent(unsigned flags = CU_EVENT_DEFAULT) {
    EXPECT_CUDA(cuEventCreate(&event_, flags));
  }
  ~OwnEvent() { EXPECT_CUDA(cuEventDestroy(event_)); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  operator CUevent() const { return event_; }  // NOLINT: stands for it

 private:
  CUevent event_ = nullptr;
};
