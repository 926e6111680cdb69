// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: the driver's functions by name, and what the emulator has not (memory handles
// between processes; VMM handles do that).
#include "runtime.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

cudaError_t not_supported() {
  return with_context([] { return CUDA_ERROR_NOT_SUPPORTED; });
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) {
  return with_driver([&]() -> CUresult {
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult code = cuGetProcAddress(symbol, function, static_cast<int>(version), flags, &found);
    if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    // That there is no such symbol is told by the status alone.
    return code == CUDA_ERROR_NOT_FOUND && status != nullptr ? CUDA_SUCCESS : code;
  });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, EMULATED_RUNTIME_VERSION, flags,
                                          status);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return not_supported(); }

cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return not_supported(); }

cudaError_t cudaIpcCloseMemHandle(void*) { return not_supported(); }

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) { return not_supported(); }

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) { return not_supported(); }

}  // extern "C"
