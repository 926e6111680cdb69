// SPDX-License-Identifier: Apache-2.0
//
// Contract of memory: allocation, registration, copies, fills, what is known about an address, and
// the errors for misuse.
#include <sys/mman.h>

#include <cstring>
#include <numeric>

#include "fixture.h"

namespace {

using MemoryTest = CudaTest;

std::vector<uint8_t> pattern(size_t bytes, uint8_t first) {
  std::vector<uint8_t> content(bytes);
  std::iota(content.begin(), content.end(), first);
  return content;
}

CUdeviceptr unified(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

TEST_F(MemoryTest, SynchronousCopiesOfAllKinds) {
  const auto content = pattern(5000, 3);
  Buffer a(5000);
  Buffer b(5000);
  a.write(content);
  EXPECT_CUDA(cuMemcpyDtoD(b.address(), a.address(), 5000));
  EXPECT_EQ(b.read(), content);

  std::vector<uint8_t> host(5000);
  EXPECT_CUDA(cuMemcpy(unified(host.data()), b.address(), 5000));
  EXPECT_EQ(host, content);
  host[0] = 99;
  EXPECT_CUDA(cuMemcpy(a.address(), unified(host.data()), 5000));
  EXPECT_EQ(a.read(), host);
}

TEST_F(MemoryTest, CopiesOfParts) {
  Buffer buffer(100);
  buffer.write(std::vector<uint8_t>(100, 0));
  const auto content = pattern(10, 1);
  EXPECT_CUDA(cuMemcpyHtoD(buffer.address() + 90, content.data(), 10));
  EXPECT_CUDA(cuMemcpyDtoD(buffer.address() + 1, buffer.address() + 90, 5));
  const auto result = buffer.read();
  EXPECT_EQ(result[0], 0);
  EXPECT_EQ(result[1], 1);
  EXPECT_EQ(result[5], 5);
  EXPECT_EQ(result[6], 0);
  EXPECT_EQ(result[99], 10);
}

TEST_F(MemoryTest, PageableSourcesMayChangeAfterTheCall) {
  OwnStream stream;
  Gate gate;
  Buffer buffer(64);
  std::vector<uint8_t> source(64, 1);
  gate.hold(stream);
  EXPECT_CUDA(cuMemcpyHtoDAsync(buffer.address(), source.data(), 64, stream));
  source.assign(64, 2);
  gate.open();
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(buffer.read(), std::vector<uint8_t>(64, 1));
}

TEST_F(MemoryTest, PinnedSourcesAreReadInStreamOrder) {
  OwnStream stream;
  Gate gate;
  Buffer buffer(64);
  Pinned<uint8_t> source(64);
  std::memset(source.get(), 1, 64);
  gate.hold(stream);
  EXPECT_CUDA(cuMemcpyHtoDAsync(buffer.address(), source.get(), 64, stream));
  std::memset(source.get(), 2, 64);
  gate.open();
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(buffer.read(), std::vector<uint8_t>(64, 2));
}

TEST_F(MemoryTest, PageableTargetsAreThereWhenTheCallReturns) {
  OwnStream stream;
  Buffer buffer(64);
  EXPECT_CUDA(cuMemsetD8Async(buffer.address(), 6, 64, stream));
  std::vector<uint8_t> target(64);
  EXPECT_CUDA(cuMemcpyDtoHAsync(target.data(), buffer.address(), 64, stream));
  EXPECT_EQ(target, std::vector<uint8_t>(64, 6));
}

TEST_F(MemoryTest, FillsOfAllWidths) {
  Buffer buffer(24);
  EXPECT_CUDA(cuMemsetD8(buffer.address(), 0x11, 8));
  EXPECT_CUDA(cuMemsetD16(buffer.address() + 8, 0x2233, 4));
  EXPECT_CUDA(cuMemsetD32(buffer.address() + 16, 0x44556677, 2));
  const auto result = buffer.read();
  EXPECT_EQ(result[7], 0x11);
  EXPECT_EQ(result[14], 0x33);
  EXPECT_EQ(result[15], 0x22);
  EXPECT_EQ(result[20], 0x77);
  EXPECT_EQ(result[23], 0x44);
  EXPECT_EQ(cuMemsetD32(buffer.address() + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, RowsOfTwoDimensions) {
  Buffer buffer(64);
  EXPECT_CUDA(cuMemsetD8(buffer.address(), 0, 64));
  EXPECT_CUDA(cuMemsetD2D8(buffer.address() + 1, 16, 7, 3, 4));
  std::vector<uint8_t> rows(12);
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = buffer.address();
  shape.srcPitch = 16;
  shape.srcXInBytes = 2;
  shape.srcY = 1;
  shape.dstMemoryType = CU_MEMORYTYPE_HOST;
  shape.dstHost = rows.data();
  shape.dstPitch = 4;
  shape.WidthInBytes = 3;
  shape.Height = 3;
  EXPECT_CUDA(cuMemcpy2D(&shape));
  EXPECT_EQ(rows, (std::vector<uint8_t>{7, 7, 0, 0, 7, 7, 0, 0, 7, 7, 0, 0}));
}

TEST_F(MemoryTest, StreamOrderedAllocation) {
  OwnStream stream;
  CUdeviceptr address = 0;
  ASSERT_CUDA(cuMemAllocAsync(&address, 256, stream));
  EXPECT_CUDA(cuMemsetD8Async(address, 3, 256, stream));
  Pinned<uint8_t> result(256);
  EXPECT_CUDA(cuMemcpyDtoHAsync(result.get(), address, 256, stream));
  EXPECT_CUDA(cuMemFreeAsync(address, stream));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(result.get()[255], 3);
}

TEST_F(MemoryTest, RegisteredHostMemory) {
  constexpr size_t kBytes = 8192;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  CUdeviceptr device = 0;
  EXPECT_EQ(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_CUDA(cuMemHostRegister(memory, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_EQ(cuMemHostRegister(memory, kBytes, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_CUDA(cuMemHostGetDevicePointer(&device, memory, 0));
  EXPECT_NE(device, 0U);
  EXPECT_CUDA(cuMemsetD8(device, 8, kBytes));
  EXPECT_CUDA(cuCtxSynchronize());
  EXPECT_EQ(static_cast<uint8_t*>(memory)[kBytes - 1], 8);
  EXPECT_CUDA(cuMemHostUnregister(memory));
  EXPECT_EQ(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  munmap(memory, kBytes);
}

TEST_F(MemoryTest, ManagedMemoryIsForBothSides) {
  CUdeviceptr address = 0;
  ASSERT_CUDA(cuMemAllocManaged(&address, 128, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CUDA(cuMemsetD8(address, 4, 128));
  EXPECT_CUDA(cuCtxSynchronize());
  EXPECT_EQ(reinterpret_cast<uint8_t*>(address)[127], 4);
  unsigned managed = 0;
  EXPECT_CUDA(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  EXPECT_EQ(managed, 1U);
  EXPECT_CUDA(cuMemFree(address));
}

TEST_F(MemoryTest, WhatIsKnownOfAnAddress) {
  Buffer buffer(4096);
  unsigned type = 0;
  int device = -1;
  CUcontext context = nullptr;
  CUdeviceptr start = 0;
  size_t bytes = 0;
  CUdeviceptr inside = buffer.address() + 100;
  EXPECT_CUDA(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_CUDA(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
  EXPECT_EQ(device, device_);
  EXPECT_CUDA(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  EXPECT_EQ(context, context_);
  EXPECT_CUDA(cuMemGetAddressRange(&start, &bytes, inside));
  EXPECT_EQ(start, buffer.address());
  EXPECT_EQ(bytes, 4096U);

  Pinned<char> pinned(64);
  EXPECT_CUDA(
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unified(pinned.get())));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
}

TEST_F(MemoryTest, NothingIsKnownOfOrdinaryMemory) {
  int local = 0;
  unsigned type = 9;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unified(&local)),
            CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  void* values[] = {&type};
  EXPECT_CUDA(cuPointerGetAttributes(1, names, values, unified(&local)));
  EXPECT_EQ(type, 0U);
}

TEST_F(MemoryTest, BuffersAtOneAddressHaveDifferentIds) {
  unsigned long long ids[2] = {0, 0};
  for (unsigned long long& id : ids) {
    Buffer buffer(1 << 20);
    EXPECT_CUDA(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, buffer.address()));
  }
  EXPECT_NE(ids[0], ids[1]);
}

TEST_F(MemoryTest, FreeingWaitsForTheWorkThatUsesIt) {
  OwnStream stream;
  std::atomic<bool> done{false};
  CUdeviceptr address = 0;
  ASSERT_CUDA(cuMemAlloc(&address, 64));
  EXPECT_CUDA(cuMemsetD8Async(address, 1, 64, stream));
  EXPECT_CUDA(cuLaunchHostFunc(
      stream, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &done));
  EXPECT_CUDA(cuMemFree(address));
  EXPECT_TRUE(done);
}

TEST_F(MemoryTest, Amounts) {
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  EXPECT_CUDA(cuMemGetInfo(&before, &total));
  EXPECT_LE(before, total);
  Buffer buffer(64 << 20);
  EXPECT_CUDA(cuMemGetInfo(&after, &total));
  EXPECT_LT(after, before);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryTest, Misuse) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemFree(0));
  ASSERT_CUDA(cuMemAlloc(&address, 1000));
  EXPECT_EQ(cuMemFree(address + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemFree(address));
  EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
  int local = 0;
  EXPECT_EQ(cuMemFree(unified(&local)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeHost(&local), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostRegister(nullptr, 16, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostGetDevicePointer(&address, &local, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, CopiesOutsideOfDeviceMemory) {
  Buffer buffer(512);
  std::vector<uint8_t> host(4096);
  EXPECT_EQ(cuMemcpyHtoD(unified(host.data()), host.data(), 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(host.data(), 0, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemcpyHtoD(buffer.address(), host.data(), 0));
}

// NVIDIA's driver reserves memory in larger pieces, and finds these only sometimes.
TEST_F(MemoryTest, EmulatedBounds) {
  Buffer buffer(512);
  std::vector<uint8_t> host(513);
  EXPECT_EQ(cuMemcpyHtoD(buffer.address(), host.data(), 513), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(host.data(), buffer.address() + 1, 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(buffer.address(), 0, 513), CUDA_ERROR_INVALID_VALUE);
  OwnStream stream;
  CUdeviceptr address = 0;
  ASSERT_CUDA(cuMemAllocAsync(&address, 256, stream));
  EXPECT_CUDA(cuMemFreeAsync(address, stream));
  EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, EmulatedFreshMemoryIsNotZero) {
  Buffer buffer(1 << 16);
  const auto content = buffer.read();
  EXPECT_NE(content.front(), 0);
  EXPECT_NE(content.back(), 0);
}

}  // namespace
