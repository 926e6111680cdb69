// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: memory, registration, windows. Nothing gains from registration here, so
// handles only remember what they stand for.
#include <set>

#include "communicator.h"
#include "device.h"
#include "exports.h"
#include "group.h"
#include "newer.h"
#include "result.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

/// What a window's handle points at.
struct ncclWindow_vidmem {
  ncclComm_t comm;
  void* memory;
};

namespace {

ncclResult_t check_arguments(const char* function, ncclComm_t comm, bool valid) {
  if (find_handle(comm) && valid) return ncclSuccess;
  return fail(ncclInvalidArgument, "%s: the communicator or another argument is null or not valid",
              function);
}

}  // namespace

extern "C" {

ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  if (ptr == nullptr || size == 0) {
    return fail(ncclInvalidArgument, "ncclMemAlloc: ptr must not be null nor size 0");
  }
  int number = 0;
  Device device;
  ncclResult_t result = current_device(&number);
  if (result == ncclSuccess) result = device.open(number);
  if (result != ncclSuccess) return result;
  ContextScope scope(device.context());
  CUdeviceptr memory = 0;
  result = check(::cuMemAlloc(&memory, size), "cuMemAlloc");
  *ptr = reinterpret_cast<void*>(memory);
  return result;
}

ncclResult_t pncclMemFree(void* ptr) {
  if (ptr == nullptr) return ncclSuccess;
  return check(::cuMemFree(reinterpret_cast<CUdeviceptr>(ptr)), "cuMemFree");
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  if (!find_handle(comm) || handle == nullptr || (buff == nullptr && size > 0)) {
    return fail(ncclInvalidArgument, "ncclCommRegister: comm, buff and handle must be valid");
  }
  *handle = buff;  // nothing gains from registration here
  return ncclSuccess;
}

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void*) {
  if (find_handle(comm)) return ncclSuccess;
  return fail(ncclInvalidArgument, "ncclCommDeregister: the communicator is not a live one");
}

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                     int) {
  ncclResult_t result =
      check_arguments("ncclCommWindowRegister", comm, win != nullptr && (buff != nullptr || !size));
  if (result == ncclSuccess) *win = new ncclWindow_vidmem{comm, buff};
  return result;
}

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  if (win == nullptr) return ncclSuccess;
  ncclResult_t result = check_arguments("ncclCommWindowDeregister", comm, true);
  if (result == ncclSuccess) delete win;
  return result;
}

ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** pointer) {
  ncclResult_t result =
      check_arguments("ncclWinGetUserPtr", comm, win != nullptr && pointer != nullptr);
  if (result == ncclSuccess) *pointer = win->memory;
  return result;
}

}  // extern "C"

RY_WEAK_NAME(ncclMemAlloc);
RY_WEAK_NAME(ncclMemFree);
RY_WEAK_NAME(ncclCommRegister);
RY_WEAK_NAME(ncclCommDeregister);
RY_WEAK_NAME(ncclCommWindowRegister);
RY_WEAK_NAME(ncclCommWindowDeregister);
RY_WEAK_NAME(ncclWinGetUserPtr);
