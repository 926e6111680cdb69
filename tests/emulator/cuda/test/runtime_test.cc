// SPDX-License-Identifier: Apache-2.0
//
// Contract of the CUDA runtime: how it and the driver share contexts, and its errors. What it only
// passes on to the driver is tested there.
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace {

#define EXPECT_RUNTIME(expression) EXPECT_EQ(expression, cudaSuccess)

class RuntimeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    cudaGetLastError();
  }
};

int device_count() {
  int count = 0;
  EXPECT_RUNTIME(cudaGetDeviceCount(&count));
  return count;
}

TEST_F(RuntimeTest, ThreadsStartOnDevice0WithoutAContext) {
  std::thread([] {
    int device = -1;
    EXPECT_RUNTIME(cudaGetDevice(&device));
    EXPECT_EQ(device, 0);
    CUcontext context = nullptr;
    EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(context, nullptr);
    void* memory = nullptr;
    EXPECT_RUNTIME(cudaMalloc(&memory, 16));
    EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    EXPECT_NE(context, nullptr);
    EXPECT_RUNTIME(cudaFree(memory));
  }).join();
}

TEST_F(RuntimeTest, SettingADeviceMakesItsPrimaryContextCurrent) {
  const int last = device_count() - 1;
  EXPECT_RUNTIME(cudaSetDevice(last));
  CUcontext current = nullptr;
  CUcontext primary = nullptr;
  EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&primary, last), CUDA_SUCCESS);
  EXPECT_EQ(current, primary);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(last), CUDA_SUCCESS);
}

TEST_F(RuntimeTest, TheRuntimeFollowsTheDriversContext) {
  const int last = device_count() - 1;
  CUcontext primary = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, last), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
  int device = -1;
  EXPECT_RUNTIME(cudaGetDevice(&device));
  EXPECT_EQ(device, last);
  void* memory = nullptr;
  EXPECT_RUNTIME(cudaMalloc(&memory, 16));
  cudaPointerAttributes attributes{};
  EXPECT_RUNTIME(cudaPointerGetAttributes(&attributes, memory));
  EXPECT_EQ(attributes.device, last);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.devicePointer, memory);
  EXPECT_RUNTIME(cudaFree(memory));
  EXPECT_RUNTIME(cudaSetDevice(0));
  EXPECT_EQ(cuDevicePrimaryCtxRelease(last), CUDA_SUCCESS);
}

TEST_F(RuntimeTest, OrdinaryMemoryIsUnregistered) {
  int local = 0;
  cudaPointerAttributes attributes{};
  EXPECT_RUNTIME(cudaPointerGetAttributes(&attributes, &local));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  void* pinned = nullptr;
  EXPECT_RUNTIME(cudaMallocHost(&pinned, 64));
  EXPECT_RUNTIME(cudaPointerGetAttributes(&attributes, pinned));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes.hostPointer, pinned);
  EXPECT_RUNTIME(cudaFreeHost(pinned));
}

TEST_F(RuntimeTest, CopiesInAllDirections) {
  const std::vector<char> content(3000, 'x');
  std::vector<char> result(3000);
  void* a = nullptr;
  void* b = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&a, 3000), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&b, 3000, stream), cudaSuccess);
  EXPECT_RUNTIME(cudaMemcpyAsync(a, content.data(), 3000, cudaMemcpyHostToDevice, stream));
  EXPECT_RUNTIME(cudaMemcpyAsync(b, a, 3000, cudaMemcpyDeviceToDevice, stream));
  EXPECT_RUNTIME(cudaMemsetAsync(a, 'y', 3000, stream));
  EXPECT_RUNTIME(cudaMemcpyAsync(result.data(), b, 3000, cudaMemcpyDefault, stream));
  EXPECT_RUNTIME(cudaStreamSynchronize(stream));
  EXPECT_EQ(result, content);
  EXPECT_RUNTIME(cudaMemcpy(result.data(), a, 3000, cudaMemcpyDeviceToHost));
  EXPECT_EQ(result, std::vector<char>(3000, 'y'));
  EXPECT_RUNTIME(cudaMemcpy(result.data(), content.data(), 3000, cudaMemcpyHostToHost));
  EXPECT_EQ(result, content);
  EXPECT_RUNTIME(cudaMemset2D(a, 100, 'z', 50, 30));
  EXPECT_RUNTIME(cudaMemcpy2D(result.data(), 50, a, 100, 50, 30, cudaMemcpyDeviceToHost));
  EXPECT_EQ(std::string(result.data(), 1500), std::string(1500, 'z'));
  EXPECT_RUNTIME(cudaFreeAsync(b, stream));
  EXPECT_RUNTIME(cudaStreamSynchronize(stream));
  EXPECT_RUNTIME(cudaFree(a));
  EXPECT_RUNTIME(cudaStreamDestroy(stream));
}

TEST_F(RuntimeTest, HostFunctionsAndCallbacks) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  int steps = 0;
  EXPECT_RUNTIME(cudaLaunchHostFunc(
      stream, [](void* n) { *static_cast<int*>(n) += 1; }, &steps));
  EXPECT_RUNTIME(cudaStreamAddCallback(
      stream,
      [](cudaStream_t, cudaError_t status, void* n) {
        if (status == cudaSuccess) *static_cast<int*>(n) *= 10;
      },
      &steps, 0));
  EXPECT_RUNTIME(cudaDeviceSynchronize());
  EXPECT_EQ(steps, 10);
  EXPECT_RUNTIME(cudaStreamDestroy(stream));
}

TEST_F(RuntimeTest, CapturesAndReplays) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  int calls = 0;
  const auto count_up = [](void* count) { ++*static_cast<int*>(count); };
  EXPECT_RUNTIME(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_RUNTIME(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_RUNTIME(cudaLaunchHostFunc(stream, count_up, &calls));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  size_t count = 0;
  EXPECT_RUNTIME(cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(count, 1U);
  EXPECT_RUNTIME(cudaStreamEndCapture(stream, &graph));
  cudaUserObject_t object = nullptr;
  EXPECT_RUNTIME(
      cudaUserObjectCreate(&object, &calls, count_up, 1, cudaUserObjectNoDestructorSync));
  EXPECT_RUNTIME(cudaGraphRetainUserObject(graph, object, 1, 0));
  EXPECT_RUNTIME(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) EXPECT_RUNTIME(cudaGraphLaunch(exec, stream));
  EXPECT_RUNTIME(cudaStreamSynchronize(stream));
  EXPECT_EQ(calls, 3);
  EXPECT_RUNTIME(cudaGraphExecDestroy(exec));
  EXPECT_RUNTIME(cudaGraphDestroy(graph));
  EXPECT_RUNTIME(cudaStreamDestroy(stream));
}

TEST_F(RuntimeTest, TheLastErrorIsKeptUntilRead) {
  EXPECT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
  EXPECT_RUNTIME(cudaDeviceSynchronize());
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_RUNTIME(cudaPeekAtLastError()); }).join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_RUNTIME(cudaGetLastError());
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  EXPECT_STRNE(cudaGetErrorString(cudaErrorInvalidDevice), "");
}

TEST_F(RuntimeTest, Misuse) {
  void* memory = nullptr;
  EXPECT_RUNTIME(cudaMalloc(&memory, 0));
  EXPECT_EQ(memory, nullptr);
  EXPECT_RUNTIME(cudaFree(nullptr));
  EXPECT_RUNTIME(cudaFreeHost(nullptr));
  EXPECT_EQ(cudaMalloc(nullptr, 16), cudaErrorInvalidValue);
  int local = 0;
  EXPECT_EQ(cudaFree(&local), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostUnregister(&local), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaMemcpy(&local, &local, 4, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaGetDevice(nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_F(RuntimeTest, Properties) {
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  int processors = 0;
  EXPECT_RUNTIME(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  EXPECT_EQ(properties.multiProcessorCount, processors);
  EXPECT_STRNE(properties.name, "");
  EXPECT_EQ(properties.unifiedAddressing, 1);
  CUuuid uuid{};
  EXPECT_EQ(cuDeviceGetUuid(&uuid, 0), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&uuid, &properties.uuid, sizeof(uuid)), 0);
  size_t free = 0;
  size_t total = 0;
  EXPECT_RUNTIME(cudaMemGetInfo(&free, &total));
  EXPECT_LE(free, total);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1000), cudaErrorInvalidDevice);
  cudaGetLastError();
}

TEST_F(RuntimeTest, DriverFunctionsByName) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  EXPECT_RUNTIME(
      cudaGetDriverEntryPointByVersion("cuMemCreate", &found, 12000, cudaEnableDefault, &status));
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  EXPECT_NE(found, nullptr);
  EXPECT_RUNTIME(
      cudaGetDriverEntryPointByVersion("cuNone", &found, 12000, cudaEnableDefault, &status));
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
}

TEST_F(RuntimeTest, ResettingADeviceStartsAnew) {
  const int last = device_count() - 1;
  EXPECT_RUNTIME(cudaSetDevice(last));
  void* memory = nullptr;
  EXPECT_RUNTIME(cudaMalloc(&memory, 64));
  EXPECT_RUNTIME(cudaDeviceReset());
  EXPECT_RUNTIME(cudaMalloc(&memory, 64));
  EXPECT_RUNTIME(cudaMemset(memory, 1, 64));
  EXPECT_RUNTIME(cudaDeviceSynchronize());
  int device = -1;
  EXPECT_RUNTIME(cudaGetDevice(&device));
  EXPECT_EQ(device, last);
  EXPECT_RUNTIME(cudaFree(memory));
}

TEST_F(RuntimeTest, ThreadsDriveDevicesOfTheirOwn) {
  std::vector<std::thread> threads;
  for (int device = 0; device < device_count(); ++device) {
    threads.emplace_back([device] {
      EXPECT_RUNTIME(cudaSetDevice(device));
      cudaStream_t stream = nullptr;
      EXPECT_RUNTIME(cudaStreamCreate(&stream));
      void* memory = nullptr;
      EXPECT_RUNTIME(cudaMalloc(&memory, 1024));
      std::vector<char> result(1024);
      for (int round = 0; round < 20; ++round) {
        EXPECT_RUNTIME(cudaMemsetAsync(memory, device + round, 1024, stream));
        EXPECT_RUNTIME(
            cudaMemcpyAsync(result.data(), memory, 1024, cudaMemcpyDeviceToHost, stream));
        EXPECT_EQ(result[1023], static_cast<char>(device + round));
      }
      EXPECT_RUNTIME(cudaFree(memory));
      EXPECT_RUNTIME(cudaStreamDestroy(stream));
      int current = -1;
      EXPECT_RUNTIME(cudaGetDevice(&current));
      EXPECT_EQ(current, device);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The runtime of CUDA 12 next to that of CUDA 13, as when two libraries of a process want different
// ones. Its structure of properties is longer and has other places for its fields.
TEST_F(RuntimeTest, TheRuntimeOfCuda12) {
  void* library = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "no libcudart.so.12";
  auto get_version =
      reinterpret_cast<cudaError_t (*)(int*)>(dlsym(library, "cudaRuntimeGetVersion"));
  auto get_properties =
      reinterpret_cast<cudaError_t (*)(void*, int)>(dlsym(library, "cudaGetDeviceProperties_v2"));
  ASSERT_NE(get_version, nullptr);
  ASSERT_NE(get_properties, nullptr);
  int version = 0;
  EXPECT_RUNTIME(get_version(&version));
  EXPECT_EQ(version / 1000, 12);
  EXPECT_RUNTIME(cudaRuntimeGetVersion(&version));
  EXPECT_EQ(version / 1000, 13);
  constexpr size_t kBytes = 1032;
  constexpr size_t kProcessorsAt = 388;
  std::vector<char> properties(kBytes + 8, 'q');
  EXPECT_RUNTIME(get_properties(properties.data(), 0));
  int processors[2] = {0, -1};
  std::memcpy(&processors[0], &properties[kProcessorsAt], sizeof(int));
  EXPECT_RUNTIME(cudaDeviceGetAttribute(&processors[1], cudaDevAttrMultiProcessorCount, 0));
  EXPECT_EQ(processors[0], processors[1]);
  EXPECT_EQ(properties[kBytes], 'q');
}

}  // namespace
