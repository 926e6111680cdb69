// SPDX-License-Identifier: Apache-2.0
//
// Contract of devices, contexts and kernels, and what becomes of the driver when processes fork or
// exit. Device properties that only the emulator has are in tests named Emulated….
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "fixture.h"

namespace {

using DeviceTest = CudaTest;

int attribute(CUdevice_attribute name, CUdevice device = 0) {
  int value = -1;
  EXPECT_CUDA(cuDeviceGetAttribute(&value, name, device));
  return value;
}

std::string identity(CUdevice device) {
  CUuuid uuid{};
  char bus[32] = "";
  EXPECT_CUDA(cuDeviceGetUuid(&uuid, device));
  EXPECT_CUDA(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
  CUdevice again = -1;
  EXPECT_CUDA(cuDeviceGetByPCIBusId(&again, bus));
  EXPECT_EQ(again, device);
  return std::string(uuid.bytes, sizeof(uuid.bytes)) + bus;
}

/// What this program prints when it runs one disabled test with a changed environment.
std::string run(const std::string& test, const std::vector<std::string>& environment, int* status) {
  char self[4096] = "";
  EXPECT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  std::string command = "timeout 60 env -u CUDA_VISIBLE_DEVICES";
  for (const std::string& entry : environment) command += " '" + entry + "'";
  command += std::string(" '") + self + "' --gtest_also_run_disabled_tests --gtest_filter=" + test;
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char chunk[256];
  while (fgets(chunk, sizeof(chunk), pipe) != nullptr) output += chunk;
  *status = pclose(pipe);
  return output;
}

TEST_F(DeviceTest, Attributes) {
  int count = 0;
  EXPECT_CUDA(cuDeviceGetCount(&count));
  EXPECT_GE(count, 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM), 1);
  EXPECT_GE(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 7);
  EXPECT_GE(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 1);
  char name[64] = "";
  EXPECT_CUDA(cuDeviceGetName(name, sizeof(name), 0));
  EXPECT_NE(name[0], '\0');
  int version = 0;
  EXPECT_CUDA(cuDriverGetVersion(&version));
  EXPECT_GE(version, 12000);
}

TEST_F(DeviceTest, DevicesDiffer) {
  int count = 0;
  EXPECT_CUDA(cuDeviceGetCount(&count));
  std::set<std::string> seen;
  for (int device = 0; device < count; ++device) {
    EXPECT_TRUE(seen.insert(identity(device)).second) << device;
  }
}

TEST_F(DeviceTest, Misuse) {
  int count = 0;
  int value = 0;
  CUdevice device = 0;
  EXPECT_CUDA(cuDeviceGetCount(&count));
  EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGet(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, count),
            CUDA_ERROR_INVALID_DEVICE);
  const char* text = nullptr;
  EXPECT_EQ(cuGetErrorString(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_INVALID_VALUE");
}

TEST_F(DeviceTest, EachThreadHasItsOwnCurrentContext) {
  std::thread([this] {
    CUcontext current = context_;
    EXPECT_CUDA(cuCtxGetCurrent(&current));
    EXPECT_EQ(current, nullptr);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 16), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CUDA(cuCtxPushCurrent(context_));
    CUdevice device = -1;
    EXPECT_CUDA(cuCtxGetDevice(&device));
    EXPECT_EQ(device, device_);
    EXPECT_CUDA(cuCtxPopCurrent(&current));
    EXPECT_EQ(current, context_);
    EXPECT_EQ(cuCtxPopCurrent(&current), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

TEST_F(DeviceTest, ThePrimaryContextIsOne) {
  CUcontext again = nullptr;
  EXPECT_CUDA(cuDevicePrimaryCtxRetain(&again, device_));
  EXPECT_EQ(again, context_);
  EXPECT_CUDA(cuDevicePrimaryCtxRelease(device_));
  unsigned flags = 0;
  int active = 0;
  EXPECT_CUDA(cuDevicePrimaryCtxGetState(device_, &flags, &active));
  EXPECT_EQ(active, 1);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&again, 1000), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, ContextsStack) {
  CUcontext created = nullptr;
  ASSERT_CUDA(cuCtxCreate(&created, nullptr, 0, device_));
  CUcontext current = nullptr;
  EXPECT_CUDA(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, created);
  EXPECT_NE(created, context_);
  {
    OwnEvent foreign;
    EXPECT_CUDA(cuCtxPushCurrent(context_));
    EXPECT_EQ(cuEventRecord(foreign, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_CUDA(cuCtxPopCurrent(&current));
  }
  EXPECT_CUDA(cuCtxDestroy(created));
  EXPECT_CUDA(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
}

TEST_F(DeviceTest, PeersReachEachOther) {
  int count = 0;
  EXPECT_CUDA(cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "needs two devices";
  int can = 0;
  EXPECT_CUDA(cuDeviceCanAccessPeer(&can, 0, 1));
  if (can == 0) GTEST_SKIP() << "needs peer access";
  CUcontext peer = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&peer, 1));
  EXPECT_CUDA(cuCtxEnablePeerAccess(peer, 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_CUDA(cuCtxDisablePeerAccess(peer));
  EXPECT_EQ(cuCtxDisablePeerAccess(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_CUDA(cuDevicePrimaryCtxRelease(1));
}

TEST_F(DeviceTest, FunctionsByName) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  EXPECT_CUDA(cuGetProcAddress("cuMemAlloc", &found, CUDA_VERSION, 0, &status));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuMemAlloc));
  EXPECT_CUDA(cuGetProcAddress("cuInit", &found, CUDA_VERSION, 0, &status));
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuInit));
  void* old = nullptr;
  EXPECT_CUDA(cuGetProcAddress("cuStreamGetCaptureInfo", &old, 12000, 0, &status));
  EXPECT_CUDA(cuGetProcAddress("cuStreamGetCaptureInfo", &found, CUDA_VERSION, 0, &status));
  EXPECT_NE(old, found);
  EXPECT_EQ(cuGetProcAddress("cuNoSuchFunction", &found, CUDA_VERSION, 0, &status),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

TEST_F(DeviceTest, EmulatedAttributes) {
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 3);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 4);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED), 0);
  int value = -1;
  EXPECT_CUDA(
      cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
  EXPECT_EQ(value, 1);
  EXPECT_CUDA(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  EXPECT_EQ(value, 1);
}

TEST_F(DeviceTest, EmulatedKernels) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CUDA(cuModuleLoadData(&module, "any image"));
  EXPECT_EQ(cuModuleGetFunction(&function, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
  ASSERT_CUDA(cuModuleGetFunction(&function, module, "railyard_runs_on_host"));
  OwnStream stream;
  EXPECT_CUDA(cuLaunchKernel(function, 3, 2, 1, 4, 1, 1, 0, stream, nullptr, nullptr));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  // More threads, no blocks, too much shared memory.
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 5, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 4, 2, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1 << 20, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CUDA(cuModuleUnload(module));
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DeviceTest, AForkedChildCannotUseTheDriver) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int count = 0;
    _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// Host memory that goes when the process exits. It was there before the driver, so it goes after.
struct StaticMemory {
  ~StaticMemory() {
    if (memory == nullptr) return;
    munmap(memory, kBytes);
    // A driver that still writes there shall be seen to do it.
    usleep(20000);
  }
  static constexpr size_t kBytes = 4 << 20;
  void* memory = nullptr;
} static_memory;

/// Leaves with a stream that waits for what never comes, one that works on memory that is about to
/// go, and one that is destroyed.
TEST_F(DeviceTest, DISABLED_ExitBusy) {
  constexpr size_t kBytes = StaticMemory::kBytes;
  static_memory.memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(static_memory.memory, MAP_FAILED);
  ASSERT_CUDA(cuMemHostRegister(static_memory.memory, kBytes, 0));
  // Never destroyed, as their destructors would wait.
  static Gate* const gate = new Gate;
  static Buffer* const buffer = new Buffer(kBytes);
  CUstream streams[3];
  for (CUstream& stream : streams) ASSERT_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate->hold(streams[0]);
  gate->hold(streams[1]);
  for (int i = 0; i < 1000; ++i) {
    for (CUstream stream : streams) {
      ASSERT_CUDA(cuMemcpyDtoHAsync(static_memory.memory, buffer->address(), kBytes, stream));
    }
  }
  ASSERT_CUDA(cuStreamDestroy(streams[1]));
  exit(7);
}

TEST(ProcessTest, ExitWithBusyStreams) {
  constexpr int kRounds = 5;  // what goes wrong, goes wrong by chance
  for (int round = 0; round < kRounds; ++round) {
    int status = 0;
    run("DeviceTest.DISABLED_ExitBusy", {}, &status);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << "status " << status;
  }
}

TEST(ProcessTest, NothingWorksBeforeInitialisation) {
  int status = 0;
  run("ProcessTest.DISABLED_Uninitialised", {}, &status);
  EXPECT_EQ(status, 0);
}

TEST(ProcessTest, DISABLED_Uninitialised) {
  int count = 0;
  CUdeviceptr address = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuMemAlloc(&address, 16), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_CUDA(cuDriverGetVersion(&count));
}

TEST_F(DeviceTest, DISABLED_PrintIdentities) {
  int count = 0;
  EXPECT_CUDA(cuDeviceGetCount(&count));
  for (int device = 0; device < count; ++device) {
    printf("identity %zx\n", std::hash<std::string>()(identity(device)));
  }
}

std::vector<std::string> identities(const std::vector<std::string>& environment) {
  int status = 0;
  const std::string output = run("DeviceTest.DISABLED_PrintIdentities", environment, &status);
  EXPECT_EQ(status, 0);
  std::vector<std::string> found;
  for (size_t at = output.find("identity "); at != std::string::npos;
       at = output.find("identity ", at + 1)) {
    found.push_back(output.substr(at, output.find('\n', at) - at));
  }
  return found;
}

TEST(ProcessTest, EmulatedNodesHaveDevicesOfTheirOwn) {
  const auto first = identities({"EMULATOR_GPUS=3", "NCCL_HOSTID=node0"});
  const auto again = identities({"EMULATOR_GPUS=3", "NCCL_HOSTID=node0"});
  const auto second = identities({"EMULATOR_GPUS=3", "NCCL_HOSTID=node1"});
  EXPECT_EQ(first.size(), 3U);
  EXPECT_EQ(first, again);
  std::set<std::string> all(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  EXPECT_EQ(all.size(), 6U);
}

TEST(ProcessTest, EmulatedVisibleDevices) {
  const auto all = identities({"EMULATOR_GPUS=4", "NCCL_HOSTID=node0"});
  const auto some =
      identities({"EMULATOR_GPUS=4", "NCCL_HOSTID=node0", "CUDA_VISIBLE_DEVICES=2,0,9,1"});
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(some, (std::vector<std::string>{all[2], all[0]}));
}

}  // namespace
