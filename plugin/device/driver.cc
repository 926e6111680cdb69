// SPDX-License-Identifier: Apache-2.0
#include "device/driver.h"

#include <dlfcn.h>

namespace railyard::device {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

Result<const Driver*> load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::error(Code::kUnavailable, "no CUDA driver: %s; install the NVIDIA driver",
                         dlerror());
  }
  // Lives as long as the process, as the library does.
  auto* driver = new Driver;
#define RY_RESOLVE(member, symbol, signature) \
  driver->member = reinterpret_cast<CUresult(*) signature>(dlsym(library, symbol));
#define RY_REQUIRE(member, symbol, signature) \
  if (driver->member == nullptr) missing = symbol;
  RY_DRIVER_FUNCTIONS(RY_RESOLVE)
  RY_DRIVER_OPTIONAL_FUNCTIONS(RY_RESOLVE)
  const char* missing = nullptr;
  RY_DRIVER_FUNCTIONS(RY_REQUIRE)
#undef RY_RESOLVE
#undef RY_REQUIRE
  Status status;
  if (missing != nullptr) {
    status = Status::error(Code::kUnavailable,
                           "%s lacks %s; railyard needs a driver for CUDA 11.7 or newer", kLibrary,
                           missing);
  } else {
    status = driver->check(driver->cuInit(0), "cuInit");
  }
  if (status.ok()) return driver;
  delete driver;
  return status;
}

}  // namespace

Result<const Driver*> Driver::get() {
  // Never destroyed: threads may still use it while the process ends.
  static const auto* const loaded = new Result<const Driver*>(load());
  return *loaded;
}

Status Driver::check(CUresult result, const std::string& what) const {
  if (result == CUDA_SUCCESS) return {};
  const char* text = nullptr;
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
  return Status::error(Code::kDeviceError, "%s: %s (CUDA error %d)", what.c_str(), text,
                       static_cast<int>(result));
}

ContextScope::ContextScope(const Driver& driver, CUcontext context) : driver_(driver) {
  pushed_ = driver_.cuCtxPushCurrent(context) == CUDA_SUCCESS;
  relaxed_ = driver_.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
}

ContextScope::~ContextScope() {
  if (relaxed_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent(&popped);
}

}  // namespace railyard::device
