// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: kernels that nvcc compiled into a program. The program registers them when it
// starts, which always succeeds. One can be launched if the emulator has a kernel of the same name
// for the CPU; others are cudaErrorInvalidDeviceFunction, as on a GPU without code for it.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

struct LaunchConfig {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};

thread_local std::vector<LaunchConfig> configs;

struct Registry {
  std::mutex mutex;
  std::map<const void*, std::string> names;  ///< by the host function that stands for a kernel
  CUlibrary library = nullptr;
};

Registry& registry() {
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

CUresult find_kernel(const void* host_function, CUkernel* kernel) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  constexpr auto kUnknown = static_cast<CUresult>(cudaErrorInvalidDeviceFunction);
  auto found = all.names.find(host_function);
  if (found == all.names.end()) return kUnknown;
  CUresult code = CUDA_SUCCESS;
  if (all.library == nullptr) {
    code = cuLibraryLoadData(&all.library, "", nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  if (code == CUDA_SUCCESS) code = cuLibraryGetKernel(kernel, all.library, found->second.c_str());
  return code == CUDA_ERROR_NOT_FOUND ? kUnknown : code;
}

CUresult launch(CUkernel kernel, const LaunchConfig& config, void** arguments) {
  CUresult code =
      cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), config.grid.x, config.grid.y,
                     config.grid.z, config.block.x, config.block.y, config.block.z,
                     static_cast<unsigned>(config.shared_bytes), config.stream, arguments, nullptr);
  return code == CUDA_ERROR_INVALID_VALUE ? static_cast<CUresult>(cudaErrorInvalidConfiguration)
                                          : code;
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
char __cudaInitModule(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*,
                            dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  std::lock_guard lock(registry().mutex);
  registry().names[host_function] = name;
}

void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  configs.push_back(LaunchConfig{grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  if (configs.empty()) return fail(cudaErrorMissingConfiguration);
  const LaunchConfig& config = configs.back();
  *grid = config.grid;
  *block = config.block;
  *shared_bytes = config.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = config.stream;
  configs.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  return with_context([&] { return find_kernel(host_function, kernel); });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return with_context([&] {
    return launch(kernel, LaunchConfig{grid, block, shared_bytes, stream}, arguments);
  });
}

cudaError_t cudaLaunchKernel(const void* host_function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return with_context([&]() -> CUresult {
    CUkernel kernel = nullptr;
    CUresult code = find_kernel(host_function, &kernel);
    if (code != CUDA_SUCCESS) return code;
    return launch(kernel, LaunchConfig{grid, block, shared_bytes, stream}, arguments);
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host_function,
                                void** arguments) {
  if (config == nullptr) return fail(cudaErrorInvalidValue);
  return cudaLaunchKernel(host_function, config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream);
}

cudaError_t cudaFuncSetAttribute(const void* host_function, cudaFuncAttribute, int) {
  return with_context([&] {
    CUkernel kernel = nullptr;
    return find_kernel(host_function, &kernel);
  });
}

}  // extern "C"
