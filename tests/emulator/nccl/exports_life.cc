// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: creation, end and properties of communicators; versions and errors.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bootstrap.h"
#include "communicator.h"
#include "config.h"
#include "creation_calls.h"
#include "device.h"
#include "exports.h"
#include "group.h"
#include "result.h"
#include "version.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

namespace {

using End = ncclResult_t (Communicator::*)();

/// Ends a communicator, if there is one, by the end of the group, blocking or not.
ncclResult_t end(const char* function, ncclComm_t comm, bool ready, End how) {
  if (comm == nullptr) return ncclSuccess;
  return grouped([&]() -> ncclResult_t {
    std::shared_ptr<Communicator> communicator = find_handle(comm);
    if (!communicator) return bad_communicator(function);
    ncclResult_t result = ready ? communicator->check_ready() : ncclSuccess;
    if (result != ncclSuccess) return result;
    auto run = [=] {
      ncclResult_t ended = (communicator.get()->*how)();
      remove_handle(comm);
      return ended;
    };
    return add_job(Job{communicator, run, true});
  });
}

/// Two steps: what can be refused, at once, and what takes time.
ncclResult_t in_steps(const std::shared_ptr<Communicator>& communicator, End begin, End finish) {
  ncclResult_t result = (communicator.get()->*begin)();
  if (result != ncclSuccess) return result;
  return add_job(Job{communicator, [=] { return (communicator.get()->*finish)(); }});
}

/// create_rank() as a group of its own.
ncclResult_t create_with_config(const char* function, ncclComm_t* newcomm, int ranks,
                                const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  ncclResult_t result =
      grouped([&] { return create_rank(function, newcomm, ranks, id, rank, config); });
  if (result != ncclSuccess) return result;
  std::shared_ptr<Communicator> created = find_handle(*newcomm);
  if (created && !created->blocking()) created->ask_state(&result);
  return result;
}

template <typename F>
ncclResult_t query(const char* function, ncclComm_t comm, int* out, F get) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator(function);
  if (out == nullptr) return null_argument(function, "the result");
  ncclResult_t result = communicator->check_ready();
  if (result == ncclSuccess) *out = get(*communicator);
  return result;
}

ncclResult_t check_devices(const char* function, int count, const int* list) {
  int available = 0;
  ncclResult_t result = check(::cuInit(0), "cuInit");
  if (result == ncclSuccess) result = check(::cuDeviceGetCount(&available), "cuDeviceGetCount");
  for (int i = 0; i < count && list != nullptr && result == ncclSuccess; ++i) {
    if (list[i] < 0 || list[i] >= available) {
      result = fail(ncclInvalidArgument, "%s: there is no device %d", function, list[i]);
    } else if (std::count(list, list + i, list[i]) > 0) {
      result = fail(ncclInvalidUsage, "%s: device %d is named twice", function, list[i]);
    }
  }
  return result;
}

}  // namespace

extern "C" {

ncclResult_t pncclGetVersion(int* version) {
  if (version == nullptr) return null_argument("ncclGetVersion", "version");
  *version = nccl_version();
  return ncclSuccess;
}

ncclResult_t pncclGetUniqueId(ncclUniqueId* id) {
  return id == nullptr ? null_argument("ncclGetUniqueId", "uniqueId") : make_unique_id(id);
}

ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  // Outside of groups the caller waits, whatever NCCL_COMM_BLOCKING says.
  ncclResult_t result = create_rank("ncclCommInitRank", comm, nranks, id, rank, nullptr);
  note_result(result);
  return result;
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                     ncclConfig_t* config) {
  return create_with_config("ncclCommInitRankConfig", comm, nranks, id, rank, config);
}

ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId* ids, ncclConfig_t* config) {
  constexpr const char* kName = "ncclCommInitRankScalable";
  if (ids == nullptr) return null_argument(kName, "commIds");
  if (nId < 1 || nId > nranks) {
    return fail(ncclInvalidArgument, "%s: %d ids for %d ranks", kName, nId, nranks);
  }
  // One root is enough here.
  for (int i = 1; i < nId && myrank == 0; ++i) dismiss_root(ids[i]);
  return create_with_config(kName, newcomm, nranks, ids[0], myrank, config);
}

ncclResult_t pncclCommInitAll(ncclComm_t* comms, int ndev, const int* devlist) {
  constexpr const char* kName = "ncclCommInitAll";
  if (comms == nullptr) return null_argument(kName, "comm");
  if (ndev < 0) return fail(ncclInvalidArgument, "%s: %d devices", kName, ndev);
  ncclResult_t result = check_devices(kName, ndev, devlist);
  ncclUniqueId id;
  if (result == ncclSuccess) result = ncclGetUniqueId(&id);  // by its public name, as the real one
  bool blocking = true;
  if (result == ncclSuccess) result = read_config(nullptr, &blocking);
  if (result != ncclSuccess) return result;
  start_group();
  for (int i = 0; i < ndev; ++i) {
    int device = devlist != nullptr ? devlist[i] : i;
    note_result(add_creation(&comms[i], ndev, id, i, device, blocking));
  }
  return end_group(nullptr);
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                            ncclConfig_t* config) {
  return grouped([&]() -> ncclResult_t {
    std::shared_ptr<Communicator> parent = find_handle(comm);
    if (!parent) return bad_communicator("ncclCommSplit");
    if (newcomm == nullptr) return null_argument("ncclCommSplit", "newcomm");
    return add_child(parent, all_ranks(*parent), {color, key}, config, newcomm);
  });
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count,
                             ncclComm_t* newcomm, ncclConfig_t* config, int flags) {
  constexpr const char* kName = "ncclCommShrink";
  return grouped([&]() -> ncclResult_t {
    std::shared_ptr<Communicator> parent = find_handle(comm);
    if (!parent) return bad_communicator(kName);
    if ((flags & NCCL_SHRINK_ABORT) != 0) parent->interrupt();
    if (newcomm == nullptr) return null_argument(kName, "newcomm");
    if (excluded == nullptr || excluded_count <= 0) {
      return fail(ncclInvalidArgument, "%s: no ranks are excluded", kName);
    }
    std::sort(excluded, excluded + excluded_count);  // in the caller's list, as the real one does
    std::vector<int> members = all_ranks(*parent);
    for (int i = 0; i < excluded_count; ++i) {
      if (excluded[i] < 0 || excluded[i] >= parent->ranks() || excluded[i] == parent->rank() ||
          (i > 0 && excluded[i] == excluded[i - 1])) {
        return fail(ncclInvalidArgument, "%s: rank %d of %d cannot exclude rank %d", kName,
                    parent->rank(), parent->ranks(), excluded[i]);
      }
      std::erase(members, excluded[i]);
    }
    return add_child(parent, std::move(members), {0, parent->rank()}, config, newcomm);
  });
}

ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommFinalize");
  return grouped_on(communicator, [&] {
    ncclResult_t result = communicator->check_ready();
    if (result != ncclSuccess) return result;
    return in_steps(communicator, &Communicator::begin_finalize, &Communicator::end_finalize);
  });
}

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  return end("ncclCommDestroy", comm, true, &Communicator::destroy);
}

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  return end("ncclCommAbort", comm, false, &Communicator::abort);
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags) {
  if (comm == nullptr) return ncclSuccess;
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommRevoke");
  if (flags != 0) {
    return fail(ncclInvalidArgument, "ncclCommRevoke: flags of %d; there are none", flags);
  }
  return grouped_on(communicator, [&] {
    return in_steps(communicator, &Communicator::begin_revoke, &Communicator::end_revoke);
  });
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommGetAsyncError");
  if (asyncError == nullptr) return null_argument("ncclCommGetAsyncError", "asyncError");
  *asyncError = communicator->state();
  return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  return query("ncclCommCount", comm, count, [](auto& c) { return c.ranks(); });
}

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  return query("ncclCommCuDevice", comm, device, [](auto& c) { return c.device(); });
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  return query("ncclCommUserRank", comm, rank, [](auto& c) { return c.rank(); });
}

const char* pncclGetErrorString(ncclResult_t result) { return describe(result); }

const char* pncclGetLastError(ncclComm_t) { return last_error(); }

}  // extern "C"

RY_WEAK_NAME(ncclGetVersion);
RY_WEAK_NAME(ncclGetUniqueId);
RY_WEAK_NAME(ncclCommInitRank);
RY_WEAK_NAME(ncclCommInitRankConfig);
RY_WEAK_NAME(ncclCommInitRankScalable);
RY_WEAK_NAME(ncclCommInitAll);
RY_WEAK_NAME(ncclCommSplit);
RY_WEAK_NAME(ncclCommShrink);
RY_WEAK_NAME(ncclCommRevoke);
RY_WEAK_NAME(ncclCommFinalize);
RY_WEAK_NAME(ncclCommDestroy);
RY_WEAK_NAME(ncclCommAbort);
RY_WEAK_NAME(ncclCommGetAsyncError);
RY_WEAK_NAME(ncclCommCount);
RY_WEAK_NAME(ncclCommCuDevice);
RY_WEAK_NAME(ncclCommUserRank);
RY_WEAK_NAME(ncclGetErrorString);
RY_WEAK_NAME(ncclGetLastError);
