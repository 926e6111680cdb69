// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: memory, registration, windows.
#include <memory>

#include "communicator.h"
#include "device.h"
#include "exports.h"
#include "group.h"
#include "newer.h"
#include "result.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

namespace {

ncclResult_t bad_communicator(const char* function) {
  return fail(ncclInvalidArgument, "%s: the communicator is null or not a live one", function);
}

ncclResult_t unknown_handle(const char* function) {
  return fail(ncclInvalidUsage, "%s: the communicator has no such handle", function);
}

}  // namespace

extern "C" {

ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  int number = 0;
  Device device;
  ncclResult_t result = current_device(&number);
  if (result == ncclSuccess) result = device.open(number);
  if (result != ncclSuccess) return result;
  ContextScope scope(device.context());
  CUdeviceptr memory = 0;
  // As cudaMalloc does: nothing is a size, but there must be a place for the result.
  if (ptr == nullptr) return check(CUDA_ERROR_INVALID_VALUE, "ncclMemAlloc without ptr");
  if (size > 0) result = check(::cuMemAlloc(&memory, size), "cuMemAlloc");
  *ptr = reinterpret_cast<void*>(memory);
  return result;
}

ncclResult_t pncclMemFree(void* ptr) {
  if (ptr == nullptr) return ncclSuccess;
  return check(::cuMemFree(reinterpret_cast<CUdeviceptr>(ptr)), "cuMemFree");
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommRegister");
  if (handle == nullptr || buff == nullptr || size == 0) {
    return fail(ncclInvalidArgument, "ncclCommRegister: there must be memory and a handle");
  }
  *handle = communicator->registrations().add(buff, size);
  return ncclSuccess;
}

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommDeregister");
  if (handle == nullptr || communicator->registrations().remove(handle)) return ncclSuccess;
  return unknown_handle("ncclCommDeregister");
}

// There is no memory here that devices share by address. Then the real library, too, registers a
// window like any other memory, by the public functions, when the group ends.
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                     int) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommWindowRegister");
  if (buff == nullptr || size == 0) return ncclSuccess;
  if (win == nullptr) return fail(ncclInvalidArgument, "ncclCommWindowRegister: no win");
  return grouped([&]() -> ncclResult_t {
    ncclResult_t result = communicator->check_ready();
    if (result != ncclSuccess) return result;
    return add_job(Job{communicator, [=] {
                         return ncclCommRegister(comm, buff, size, reinterpret_cast<void**>(win));
                       }});
  });
}

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return win == nullptr ? ncclSuccess : ncclCommDeregister(comm, win);
}

ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** pointer) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclWinGetUserPtr");
  if (pointer == nullptr) return fail(ncclInvalidArgument, "ncclWinGetUserPtr: no pointer");
  if (communicator->registrations().find(win, pointer)) return ncclSuccess;
  return unknown_handle("ncclWinGetUserPtr");
}

}  // extern "C"

RY_WEAK_NAME(ncclMemAlloc);
RY_WEAK_NAME(ncclMemFree);
RY_WEAK_NAME(ncclCommRegister);
RY_WEAK_NAME(ncclCommDeregister);
RY_WEAK_NAME(ncclCommWindowRegister);
RY_WEAK_NAME(ncclCommWindowDeregister);
RY_WEAK_NAME(ncclWinGetUserPtr);
