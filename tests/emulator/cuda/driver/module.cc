// SPDX-License-Identifier: Apache-2.0
#include "module.h"

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "capture.h"
#include "handles.h"
#include "resources.h"
#include "settings.h"

namespace railyard::emulator {
namespace {

struct Module {
  const Context* context;
};

struct Function {
  const kernels::HostKernel* kernel;
  CUmodule module;
};

HandleTable<CUmodule, Module>& modules() {
  static auto* const kTable = new HandleTable<CUmodule, Module>(5);
  return *kTable;
}

HandleTable<CUfunction, Function>& functions() {
  static auto* const kTable = new HandleTable<CUfunction, Function>(6);
  return *kTable;
}

/// x * y * z, or 0 if a factor is 0 or above its limit, or the product above `limit`.
uint64_t volume(std::array<uint64_t, 3> size, std::array<uint64_t, 3> limits, uint64_t limit) {
  uint64_t product = 1;
  for (size_t i = 0; i < 3; ++i) {
    if (size[i] == 0 || size[i] > limits[i]) return 0;
    product *= size[i];
    if (product > limit) return 0;
  }
  return product;
}

/// A kernel's arguments, copied at launch.
struct Arguments {
  std::vector<uint64_t> values;
  std::vector<void*> pointers;

  Arguments(size_t count, void** parameters) : values(count), pointers(count) {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(&values[i], parameters[i], sizeof(uint64_t));
      pointers[i] = &values[i];
    }
  }
};

}  // namespace

CUresult load_module(const Context* context, const void* image, CUmodule* module) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = modules().insert(std::make_shared<Module>(Module{context}));
  return CUDA_SUCCESS;
}

CUresult unload_module(CUmodule module) {
  if (!modules().take(module)) return CUDA_ERROR_INVALID_HANDLE;
  functions().take_if([&](const Function& function) { return function.module == module; });
  return CUDA_SUCCESS;
}

CUresult get_function(CUmodule module, const char* name, CUfunction* function) {
  if (!modules().find(module)) return CUDA_ERROR_INVALID_HANDLE;
  for (const kernels::HostKernel& kernel : kernels::host_kernels()) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    *function = functions().insert(std::make_shared<Function>(Function{&kernel, module}));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

const kernels::HostKernel* find_function(CUfunction function) {
  auto found = functions().find(function);
  return found ? found->kernel : nullptr;
}

CUresult launch(CUfunction function, const Grid& grid, StreamObject& stream, void** parameters,
                void** extra) {
  constexpr unsigned kSharedBytes = 49152;
  const kernels::HostKernel* kernel = find_function(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t most = static_cast<uint64_t>(settings().block_threads);
  uint64_t blocks = volume({grid.x, grid.y, grid.z}, {2147483647, 65535, 65535}, ~uint32_t{0});
  uint64_t threads = volume({grid.block_x, grid.block_y, grid.block_z}, {most, most, most}, most);
  if (blocks == 0 || threads == 0 || grid.shared_bytes > kSharedBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (parameters == nullptr && kernel->parameters > 0) return CUDA_ERROR_INVALID_VALUE;
  auto arguments = std::make_shared<Arguments>(kernel->parameters, parameters);
  return add_work(stream, CU_GRAPH_NODE_TYPE_KERNEL, [kernel, blocks, threads, arguments] {
    kernels::run_on_host(*kernel, static_cast<uint32_t>(blocks), static_cast<uint32_t>(threads),
                         arguments->pointers.data());
  });
}

void release_modules(const Context& context) {
  // Functions of a module that is gone are never found by name again; drop them with it.
  modules().take_if([&](const Module& module) { return module.context == &context; });
  functions().take_if([](const Function& function) { return !modules().find(function.module); });
}

}  // namespace railyard::emulator
