// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of recent versions: growth, suspension, one-sided messages (refused), settings
// of the log.
#include "communicator.h"
#include "creation_calls.h"
#include "exports.h"
#include "group.h"
#include "newer.h"
#include "result.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

namespace {

constexpr int kSuspendMemory = 1;

ncclResult_t on_live(const char* function, ncclComm_t comm, ncclResult_t (Communicator::*call)()) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator(function);
  ncclResult_t result = communicator->check_ready();
  return result == ncclSuccess ? (communicator.get()->*call)() : result;
}

ncclResult_t refused(const char* function) {
  return fail(ncclInvalidUsage, "%s: the emulated NCCL has no one-sided messages", function);
}

}  // namespace

extern "C" {

ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommGetUniqueId");
  ncclResult_t result = communicator->check_ready();
  return result == ncclSuccess ? pncclGetUniqueId(id) : result;
}

ncclResult_t pncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank,
                           ncclComm_t* newcomm, ncclConfig_t* config) {
  constexpr const char* kName = "ncclCommGrow";
  if (newcomm == nullptr) return null_argument(kName, "newcomm");
  std::shared_ptr<Communicator> parent = find_handle(comm);
  if (ranks < 1 || (parent && ranks <= parent->ranks())) {
    return fail(ncclInvalidArgument, "%s: %d ranks are too few", kName, ranks);
  }
  *newcomm = nullptr;
  return grouped([&]() -> ncclResult_t {
    if (parent) return add_growth(kName, parent, ranks, id, rank, newcomm, config);
    if (comm != nullptr) return bad_communicator(kName);
    if (id == nullptr) return null_argument(kName, "uniqueId");
    return create_rank(kName, newcomm, ranks, *id, rank, config);
  });
}

ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags) {
  if (flags != kSuspendMemory) {
    return fail(ncclInvalidArgument, "ncclCommSuspend: flags of %d; there is only 1", flags);
  }
  return on_live("ncclCommSuspend", comm, &Communicator::suspend);
}

ncclResult_t pncclCommResume(ncclComm_t comm) {
  return on_live("ncclCommResume", comm, &Communicator::resume);
}

ncclResult_t pncclCommMemStats(ncclComm_t comm, int, uint64_t* bytes) {
  if (!find_handle(comm)) return bad_communicator("ncclCommMemStats");
  if (bytes == nullptr) return null_argument("ncclCommMemStats", "the result");
  *bytes = 0;
  return ncclSuccess;
}

ncclResult_t pncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int,
                            int, unsigned, ncclComm_t, cudaStream_t) {
  return refused("ncclPutSignal");
}

ncclResult_t pncclSignal(int, int, int, unsigned, ncclComm_t, cudaStream_t) {
  return refused("ncclSignal");
}

ncclResult_t pncclWaitSignal(int, void*, ncclComm_t, cudaStream_t) {
  return refused("ncclWaitSignal");
}

void pncclResetDebugInit() {}

}  // extern "C"

RY_WEAK_NAME(ncclCommGetUniqueId);
RY_WEAK_NAME(ncclCommGrow);
RY_WEAK_NAME(ncclCommSuspend);
RY_WEAK_NAME(ncclCommResume);
RY_WEAK_NAME(ncclCommMemStats);
RY_WEAK_NAME(ncclPutSignal);
RY_WEAK_NAME(ncclSignal);
RY_WEAK_NAME(ncclWaitSignal);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
RY_WEAK_NAME(ncclResetDebugInit);
#pragma GCC diagnostic pop
