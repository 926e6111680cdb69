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
constexpr int kIsSuspended = 1, kLastStatistic = 3;
constexpr unsigned kApiMagic = 0xcafebeef;

/// By the end of the group.
ncclResult_t on_live(const char* function, ncclComm_t comm, ncclResult_t (Communicator::*call)()) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator(function);
  ncclResult_t ready = communicator->check_ready();
  if (ready != ncclSuccess) return ready;
  return grouped_on(communicator, [&] {
    return add_job(Job{communicator, [=] { return (communicator.get()->*call)(); }});
  });
}

ncclResult_t refused(const char* function, ncclComm_t comm) {
  if (!find_handle(comm)) return bad_communicator(function);
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
  if ((flags & kSuspendMemory) != 0) {
    return on_live("ncclCommSuspend", comm, &Communicator::suspend);
  }
  return find_handle(comm) ? ncclSuccess : bad_communicator("ncclCommSuspend");
}

ncclResult_t pncclCommResume(ncclComm_t comm) {
  return on_live("ncclCommResume", comm, &Communicator::resume);
}

ncclResult_t pncclCommMemStats(ncclComm_t comm, int which, uint64_t* bytes) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommMemStats");
  ncclResult_t ready = communicator->check_ready();
  if (ready != ncclSuccess) return ready;
  if (bytes == nullptr) return null_argument("ncclCommMemStats", "the result");
  if (which < 0 || which > kLastStatistic) {
    return fail(ncclInvalidArgument, "ncclCommMemStats: there is no statistic %d", which);
  }
  // Rings are memory of the host; the device holds none of it.
  *bytes = which == kIsSuspended && communicator->suspended() ? 1 : 0;
  return ncclSuccess;
}

ncclResult_t pncclCommQueryProperties(ncclComm_t comm, CommProperties* properties) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommQueryProperties");
  if (properties == nullptr) return null_argument("ncclCommQueryProperties", "props");
  ncclResult_t ready = communicator->check_ready();
  if (ready != ncclSuccess) return ready;
  if (properties->magic != kApiMagic) {
    return fail(ncclInvalidUsage,
                "ncclCommQueryProperties: begin with NCCL_COMM_PROPERTIES_INITIALIZER");
  }
  properties->rank = communicator->rank();
  properties->ranks = communicator->ranks();
  properties->cuda_device = properties->nvml_device = communicator->device();
  properties->device_api_support = properties->multimem_support = false;
  if (properties->version <= NCCL_VERSION(2, 29, 3)) return ncclSuccess;
  properties->host_rma_support = false;
  properties->gin_type = properties->railed_gin_type = 0;
  properties->lsa_teams = communicator->ranks();  // each rank can only reach itself
  return ncclSuccess;
}

ncclResult_t pncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int,
                            int, unsigned, ncclComm_t comm, cudaStream_t) {
  return refused("ncclPutSignal", comm);
}

ncclResult_t pncclSignal(int, int, int, unsigned, ncclComm_t comm, cudaStream_t) {
  return refused("ncclSignal", comm);
}

ncclResult_t pncclWaitSignal(int, void*, ncclComm_t comm, cudaStream_t) {
  return refused("ncclWaitSignal", comm);
}

// The level of NCCL_DEBUG is looked up for every message, so there is nothing to reset.
void ncclResetDebugInitInternal() {}
void pncclResetDebugInit() { ncclResetDebugInitInternal(); }

}  // extern "C"

RY_WEAK_NAME(ncclCommGetUniqueId);
RY_WEAK_NAME(ncclCommGrow);
RY_WEAK_NAME(ncclCommSuspend);
RY_WEAK_NAME(ncclCommResume);
RY_WEAK_NAME(ncclCommMemStats);
RY_WEAK_NAME(ncclCommQueryProperties);
RY_WEAK_NAME(ncclPutSignal);
RY_WEAK_NAME(ncclSignal);
RY_WEAK_NAME(ncclWaitSignal);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
RY_WEAK_NAME(ncclResetDebugInit);
#pragma GCC diagnostic pop
