// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: errors and versions.
#include "errors.h"
#include "runtime.h"

namespace railyard::emulator {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

}  // namespace railyard::emulator

using namespace railyard::emulator;  // NOLINT: a file of exports only

extern "C" {

cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* known = find_error(error);
  return known != nullptr ? known->runtime : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* known = find_error(error);
  return known != nullptr ? known->text : "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int* version) { return result(cuDriverGetVersion(version)); }

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return fail(cudaErrorInvalidValue);
  *version = EMULATED_RUNTIME_VERSION;
  return cudaSuccess;
}

}  // extern "C"
