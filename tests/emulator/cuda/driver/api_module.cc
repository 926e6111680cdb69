// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: modules, libraries, kernels. A CUkernel is used as the CUfunction it names,
// as CUDA allows.
#include <algorithm>

#include "capture.h"
#include "exports.h"
#include "module.h"
#include "settings.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

CUmodule module_of(CUlibrary library) { return reinterpret_cast<CUmodule>(library); }

/// Runs `f()` if `function` exists.
template <typename F>
CUresult with_function(CUfunction function, F f) {
  return with_context([&](Context&) {
    return find_function(function) != nullptr ? f() : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return with_context_unless_captured([&](Context& context) -> CUresult {
    return module == nullptr ? CUDA_ERROR_INVALID_VALUE : load_module(&context, image, module);
  });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  return with_context_unless_captured([&](Context&) { return unload_module(module); });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return with_context([&](Context&) -> CUresult {
    if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return get_function(module, name, function);
  });
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return with_driver([&]() -> CUresult {
    if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return load_module(nullptr, image, reinterpret_cast<CUmodule*>(library));
  });
}

CUresult cuLibraryUnload(CUlibrary library) {
  return with_driver([&] { return unload_module(module_of(library)); });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return with_driver([&]() -> CUresult {
    if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return get_function(module_of(library), name, reinterpret_cast<CUfunction*>(kernel));
  });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  CUfunction same = reinterpret_cast<CUfunction>(kernel);
  return with_function(same, [&] { return store(function, same); });
}

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream handle,
                        void** parameters, void** extra) {
  return with_context([&](Context& context) -> CUresult {
    std::shared_ptr<StreamObject> stream;
    CUresult result = find_stream(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (stream->context.get() != &context) return CUDA_ERROR_INVALID_HANDLE;
    return launch(function, Grid{x, y, z, block_x, block_y, block_z, shared_bytes}, *stream,
                  parameters, extra);
  });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                        config->blockDimX, config->blockDimY, config->blockDimZ,
                        config->sharedMemBytes, config->hStream, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned x, unsigned y, unsigned z,
                                   unsigned block_x, unsigned block_y, unsigned block_z,
                                   unsigned shared_bytes, CUstream stream, void** parameters) {
  return cuLaunchKernel(function, x, y, z, block_x, block_y, block_z, shared_bytes, stream,
                        parameters, nullptr);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return with_function(function, [&]() -> CUresult {
    if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    return store(
        value, attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? settings().block_threads : 0);
  });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int) {
  return with_function(function, [] { return CUDA_SUCCESS; });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int threads, size_t, unsigned) {
  constexpr int kMostBlocks = 32;
  return with_function(function, [&]() -> CUresult {
    if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    return store(blocks, std::min(kMostBlocks, settings().block_threads / threads));
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                              shared_bytes, 0);
}

}  // extern "C"
