// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: older versions of names that cuda.h now maps to newer ones, the search for
// functions by name, texts of errors.
#include <dlfcn.h>

#include <string>

#include "context.h"
#include "errors.h"
#include "exports.h"

#undef cuDeviceGetUuid
#undef cuEventElapsedTime
#undef cuGetProcAddress

using namespace railyard::emulator;  // NOLINT: a file of exports only

extern "C" {
CUresult cuDeviceGetUuid(CUuuid*, CUdevice);
CUresult cuEventElapsedTime(float*, CUevent, CUevent);
CUresult cuGetProcAddress(const char*, void**, int, cuuint64_t);
}

namespace {

struct Version {
  const char* name;
  int since;  ///< CUDA version in which `name` began to mean `symbol`
  const char* symbol;
};

/// Names whose meaning depends on the version asked for, newest first. Of all others there is one
/// version, with or without a suffix.
constexpr Version kVersions[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 10000, "cuGraphInstantiate_v2"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"},
    {"cuGraphNodeGetDependencies", 10000, "cuGraphNodeGetDependencies"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamUpdateCaptureDependencies", 12030, "cuStreamUpdateCaptureDependencies_v2"},
    {"cuStreamUpdateCaptureDependencies", 11030, "cuStreamUpdateCaptureDependencies"},
};

/// A handle of this library.
void* self() {
  static void* const kSelf = [] {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(&cuInit), &info) == 0) return static_cast<void*>(nullptr);
    return ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return kSelf;
}

void* find_symbol(const std::string& name, int version) {
  if (self() == nullptr) return nullptr;
  bool versioned = false;
  for (const Version& entry : kVersions) {
    if (name != entry.name) continue;
    versioned = true;
    if (version >= entry.since) return ::dlsym(self(), entry.symbol);
  }
  if (versioned) return nullptr;
  void* found = ::dlsym(self(), name.c_str());
  return found != nullptr ? found : ::dlsym(self(), (name + "_v2").c_str());
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t,
                             CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = find_symbol(symbol, version);
  bool found = *function != nullptr;
  if (status != nullptr) {
    *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

CUresult cuGetExportTable(const void**, const CUuuid*) { return CUDA_ERROR_NOT_FOUND; }

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* known = find_error(error);
  if (text == nullptr || known == nullptr || known->driver == nullptr) {
    if (text != nullptr) *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
  }
  *text = known->text;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  const ErrorText* known = find_error(error);
  if (text == nullptr || known == nullptr || known->driver == nullptr) {
    if (text != nullptr) *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
  }
  *text = known->driver;
  return CUDA_SUCCESS;
}

}  // extern "C"
