// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: creation, end and properties of communicators; versions and errors.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bootstrap.h"
#include "communicator.h"
#include "creation_calls.h"
#include "device.h"
#include "exports.h"
#include "group.h"
#include "result.h"
#include "version.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

namespace {

/// Adds a job on a live communicator to the group; null communicators have nothing to do.
template <typename F>
ncclResult_t on_communicator(const char* function, ncclComm_t comm, bool ready, F run,
                             bool background = true) {
  if (comm == nullptr) return ncclSuccess;
  return grouped([&]() -> ncclResult_t {
    std::shared_ptr<Communicator> communicator = find_handle(comm);
    if (!communicator) return bad_communicator(function);
    if (ready && communicator->state() == ncclInProgress) return communicator->check_ready();
    add_job(
        Job{communicator, [communicator, run] { return run(*communicator); }, [] {}, background});
    return ncclSuccess;
  });
}

template <typename F>
ncclResult_t query(const char* function, ncclComm_t comm, int* out, F get) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator(function);
  if (out == nullptr) return null_argument(function, "the result");
  *out = get(*communicator);
  return ncclSuccess;
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
  return create_rank("ncclCommInitRank", comm, nranks, id, rank, nullptr);
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                     ncclConfig_t* config) {
  return create_rank("ncclCommInitRankConfig", comm, nranks, id, rank, config);
}

ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId* ids, ncclConfig_t* config) {
  constexpr const char* kName = "ncclCommInitRankScalable";
  if (ids == nullptr || nId < 1) return null_argument(kName, "commIds");
  return create_rank(kName, newcomm, nranks, ids[0], myrank, config);
}

ncclResult_t pncclCommInitAll(ncclComm_t* comms, int ndev, const int* devlist) {
  constexpr const char* kName = "ncclCommInitAll";
  if (comms == nullptr) return null_argument(kName, "comm");
  int available = 0;
  ncclResult_t result = check(::cuInit(0), "cuInit");
  if (result == ncclSuccess) result = check(::cuDeviceGetCount(&available), "cuDeviceGetCount");
  if (result != ncclSuccess) return result;
  std::vector<int> devices;
  for (int i = 0; i < ndev; ++i) devices.push_back(devlist != nullptr ? devlist[i] : i);
  std::fill_n(comms, devices.size(), nullptr);
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] < 0 || devices[i] >= available) {
      return fail(ncclInvalidUsage, "%s: there is no device %d", kName, devices[i]);
    }
    if (std::count(devices.begin(), devices.end(), devices[i]) > 1) {
      return fail(ncclInvalidUsage, "%s: device %d is named twice", kName, devices[i]);
    }
  }
  if (devices.empty()) return fail(ncclInvalidArgument, "%s: %d devices", kName, ndev);
  ncclUniqueId id;
  result = ncclGetUniqueId(&id);  // by its public name, as the real one does
  if (result != ncclSuccess) return result;
  return grouped([&]() -> ncclResult_t {
    for (int i = 0; i < ndev; ++i) {
      ncclResult_t added =
          add_creation(&comms[i], ndev, id, i, devices[static_cast<size_t>(i)], true);
      if (added != ncclSuccess) return added;
    }
    return ncclSuccess;
  });
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                            ncclConfig_t* config) {
  return grouped([&]() -> ncclResult_t {
    std::shared_ptr<Communicator> parent = find_handle(comm);
    if (!parent) return bad_communicator("ncclCommSplit");
    if (newcomm == nullptr) return null_argument("ncclCommSplit", "newcomm");
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
      return fail(ncclInvalidArgument, "ncclCommSplit: color %d is negative", color);
    }
    return add_child(parent, all_ranks(*parent), {color, key}, config, 0, newcomm);
  });
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count,
                             ncclComm_t* newcomm, ncclConfig_t* config, int flags) {
  constexpr const char* kName = "ncclCommShrink";
  return grouped([&]() -> ncclResult_t {
    std::shared_ptr<Communicator> parent = find_handle(comm);
    if (!parent) return bad_communicator(kName);
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
    return add_child(parent, std::move(members), {0, parent->rank()}, config, flags, newcomm);
  });
}

ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return on_communicator("ncclCommFinalize", comm, true,
                         [](Communicator& c) { return c.finalize(); });
}

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  ncclResult_t result = on_communicator("ncclCommDestroy", comm, true, [comm](Communicator& c) {
    ncclResult_t destroyed = c.destroy();
    remove_handle(comm);
    return destroyed;
  });
  // What goes on in the background is nothing that a caller could still ask about.
  return result == ncclInProgress ? ncclSuccess : result;
}

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  constexpr bool kAtOnce = false;
  return on_communicator(
      "ncclCommAbort", comm, false,
      [comm](Communicator& c) {
        ncclResult_t result = c.abort();
        remove_handle(comm);
        return result;
      },
      kAtOnce);
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags) {
  if (comm == nullptr) return ncclSuccess;
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) return bad_communicator("ncclCommRevoke");
  if (flags != 0) {
    return fail(ncclInvalidArgument, "ncclCommRevoke: flags of %d; there are none", flags);
  }
  return communicator->revoke();
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
