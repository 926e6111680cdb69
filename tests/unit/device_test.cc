// SPDX-License-Identifier: Apache-2.0
//
// Regions and scopes on whatever libcuda.so.1 the library path leads to, the emulated one in the
// test suite. Without any, what the user is told.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "device/driver.h"
#include "device/kernel_image.h"
#include "device/memory.h"

namespace railyard::device {
namespace {

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const Driver*> loaded = Driver::get();
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    driver_ = *loaded;
    ASSERT_EQ(driver_->cuDeviceGet(&device_, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&context_, device_), CUDA_SUCCESS);
    scope_.emplace(*driver_, context_);
  }
  void TearDown() override {
    scope_.reset();
    if (context_ != nullptr) driver_->cuDevicePrimaryCtxRelease(device_);
  }
  std::unique_ptr<Region> create(MemoryKind kind, uint64_t bytes) {
    auto made = Region::create(*driver_, device_, kind, bytes);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? made.take() : nullptr;
  }
  Result<std::unique_ptr<Region>> import(MemoryKind kind, int fd, uint64_t bytes) {
    return Region::import(*driver_, device_, kind, UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)), bytes);
  }
  void write(CUdeviceptr to, const std::vector<char>& bytes) {
    ASSERT_EQ(driver_->cuMemcpyHtoDAsync(to, bytes.data(), bytes.size(), nullptr), CUDA_SUCCESS);
    ASSERT_EQ(driver_->cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  }
  std::vector<char> read(CUdeviceptr from, size_t bytes) {
    std::vector<char> result(bytes);
    EXPECT_EQ(driver_->cuMemcpyDtoHAsync(result.data(), from, bytes, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver_->cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    return result;
  }

  const Driver* driver_ = nullptr;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::optional<ContextScope> scope_;
};

TEST(DriverTest, MissingDriverIsNamed) {
  const Result<const Driver*> loaded = Driver::get();
  if (loaded.ok()) GTEST_SKIP() << "this machine has a driver";
  EXPECT_EQ(loaded.status().code(), Code::kUnavailable);
  EXPECT_NE(loaded.status().message().find("libcuda.so.1"), std::string::npos);
  EXPECT_FALSE(Driver::get().ok());
}

TEST(KernelImageTest, AlwaysHasAnAddress) { EXPECT_NE(kernel_image().data(), nullptr); }

TEST_F(DeviceTest, ErrorsSayWhatFailedAndWhy) {
  EXPECT_TRUE(driver_->check(CUDA_SUCCESS, "this").ok());
  const Status status = driver_->check(CUDA_ERROR_INVALID_VALUE, "cuThis of that");
  EXPECT_EQ(status.code(), Code::kDeviceError);
  EXPECT_EQ(status.message().rfind("cuThis of that: ", 0), 0U) << status.message();
  EXPECT_NE(driver_->check(static_cast<CUresult>(900), "x").message(), "");
}

TEST_F(DeviceTest, ScopeMakesAContextCurrentAndRestores) {
  scope_.reset();
  CUcontext before = nullptr, now = nullptr;
  driver_->cuCtxGetCurrent(&before);
  EXPECT_NE(before, context_);
  {
    const ContextScope outer(*driver_, context_);
    EXPECT_EQ(driver_->cuCtxGetCurrent(&now), CUDA_SUCCESS);
    EXPECT_EQ(now, context_);
    {
      const ContextScope none(*driver_, nullptr);  // of no effect, and harmless
    }
    EXPECT_EQ(driver_->cuCtxGetCurrent(&now), CUDA_SUCCESS);
    EXPECT_EQ(now, context_);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_EQ(driver_->cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  EXPECT_EQ(driver_->cuCtxGetCurrent(&now), CUDA_SUCCESS);
  EXPECT_EQ(now, before);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  EXPECT_EQ(driver_->cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(DeviceTest, HostRegionIsZeroedSharedAndReachableFromTheGpu) {
  const auto region = create(MemoryKind::kHost, 5000);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->bytes() % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), 0U);
  EXPECT_GE(region->bytes(), 5000U);
  EXPECT_TRUE(std::all_of(region->host(), region->host() + region->bytes(),
                          [](std::byte b) { return b == std::byte{0}; }));
  auto imported = import(MemoryKind::kHost, region->fd(), region->bytes());
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_NE((*imported)->host(), region->host());
  std::memcpy(region->host() + 4090, "hello", 5);
  EXPECT_EQ(std::memcmp((*imported)->host() + 4090, "hello", 5), 0);
  EXPECT_EQ(read((*imported)->device() + 4090, 5), (std::vector<char>{'h', 'e', 'l', 'l', 'o'}));
  EXPECT_FALSE(region->export_dmabuf().valid());
}

TEST_F(DeviceTest, HostRegionCannotShrinkUnderItsUsers) {
  const auto region = create(MemoryKind::kHost, 8192);
  ASSERT_NE(region, nullptr);
  EXPECT_NE(ftruncate(region->fd(), 0), 0);
}

TEST_F(DeviceTest, ImportRefusesFilesThatCouldKillIt) {
  const UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(import(MemoryKind::kHost, unsealed.get(), 8192).status().code(),
            Code::kInvalidArgument);
  const auto region = create(MemoryKind::kHost, 8192);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(import(MemoryKind::kHost, region->fd(), 8193).status().code(), Code::kInvalidArgument);
}

TEST_F(DeviceTest, DeviceRegionOutlivesItsOwnerInAnImport) {
  auto region = create(MemoryKind::kDevice, 100000);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->host(), nullptr);
  EXPECT_GE(region->bytes(), 100000U);
  auto imported = import(MemoryKind::kDevice, region->fd(), region->bytes());
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const std::vector<char> bytes = {'a', 'b', 'c'};
  write(region->device() + 99990, bytes);
  EXPECT_EQ(read((*imported)->device() + 99990, 3), bytes);
  region.reset();
  EXPECT_EQ(read((*imported)->device() + 99990, 3), bytes);
}

TEST_F(DeviceTest, ImpossibleRegionsAreRefused) {
  EXPECT_FALSE(Region::create(*driver_, device_, MemoryKind::kHost, 0).ok());
  const UniqueFd other(memfd_create("other", MFD_CLOEXEC));
  const auto imported = import(MemoryKind::kDevice, other.get(), 1 << 20);
  EXPECT_EQ(imported.status().code(), Code::kDeviceError);
}

}  // namespace
}  // namespace railyard::device
