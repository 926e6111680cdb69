// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: creation, end and properties of communicators; versions and errors.
#include <limits.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bootstrap.h"
#include "communicator.h"
#include "device.h"
#include "exports.h"
#include "group.h"
#include "result.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

ncclResult_t check_config(const ncclConfig_t* config) {
  if (config == nullptr) return ncclSuccess;
  if (config->magic != kConfigMagic) {
    return fail(ncclInvalidArgument, "config was not begun with NCCL_CONFIG_INITIALIZER");
  }
  int blocking = config->blocking;
  if (blocking == NCCL_CONFIG_UNDEF_INT || blocking == 0 || blocking == 1) return ncclSuccess;
  return fail(ncclInvalidArgument, "config.blocking must be 0 or 1, not %d", blocking);
}

ncclResult_t bad_communicator(const char* function) {
  return fail(ncclInvalidArgument, "%s: the communicator is null or not a live one", function);
}

ncclResult_t null_argument(const char* function, const char* name) {
  return fail(ncclInvalidArgument, "%s: %s must not be null", function, name);
}

/// Adds the creation of one rank to the group.
ncclResult_t add_creation(ncclComm_t* newcomm, int ranks, const ncclUniqueId& id, int rank,
                          int device) {
  auto communicator = std::make_shared<Communicator>();
  ncclResult_t result = communicator->set_device(device);
  if (result != ncclSuccess) return result;
  communicator->set_rank(rank, ranks);
  ncclComm_t handle = add_handle(communicator);
  *newcomm = handle;
  add_job(Job{communicator, [communicator, id] { return communicator->create(id); },
              [newcomm, handle] {
                remove_handle(handle);
                *newcomm = nullptr;
              }});
  return ncclSuccess;
}

ncclResult_t create_rank(const char* function, ncclComm_t* newcomm, int ranks,
                         const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  ncclResult_t result = grouped([&]() -> ncclResult_t {
    if (newcomm == nullptr) return null_argument(function, "newcomm");
    *newcomm = nullptr;
    if (ranks < 1 || rank < 0 || rank >= ranks) {
      return fail(ncclInvalidArgument, "%s: rank %d of %d", function, rank, ranks);
    }
    int device = 0;
    ncclResult_t checked = check_config(config);
    if (checked == ncclSuccess) checked = current_device(&device);
    return checked == ncclSuccess ? add_creation(newcomm, ranks, id, rank, device) : checked;
  });
  if (result != ncclSuccess && !in_group() && newcomm != nullptr) {
    remove_handle(*newcomm);
    *newcomm = nullptr;
  }
  return result;
}

/// Adds a job on a live communicator to the group; null communicators have nothing to do.
template <typename F>
ncclResult_t on_communicator(const char* function, ncclComm_t comm, F run) {
  if (comm == nullptr) return ncclSuccess;
  return grouped([&]() -> ncclResult_t {
    std::shared_ptr<Communicator> communicator = find_handle(comm);
    if (!communicator) return bad_communicator(function);
    add_job(Job{communicator, [communicator, run] { return run(*communicator); }, [] {}});
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
  *version = NCCL_VERSION_CODE;
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
  result = make_unique_id(&id);
  if (result != ncclSuccess) return result;
  return grouped([&]() -> ncclResult_t {
    for (int i = 0; i < ndev; ++i) {
      ncclResult_t added = add_creation(&comms[i], ndev, id, i, devices[static_cast<size_t>(i)]);
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
    *newcomm = nullptr;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
      return fail(ncclInvalidArgument, "ncclCommSplit: color %d is negative", color);
    }
    ncclResult_t result = check_config(config);
    if (result == ncclSuccess) result = parent->state();
    if (result != ncclSuccess) return result;
    auto run = [=] {
      std::shared_ptr<Communicator> child;
      ncclResult_t split = Communicator::split(*parent, color, key, &child);
      if (child) *newcomm = add_handle(std::move(child));
      return split;
    };
    add_job(Job{parent, run, [] {}});
    return ncclSuccess;
  });
}

ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return on_communicator("ncclCommFinalize", comm, [](Communicator& c) { return c.finalize(); });
}

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  return on_communicator("ncclCommDestroy", comm, [comm](Communicator& c) {
    ncclResult_t result = c.destroy();
    remove_handle(comm);
    return result;
  });
}

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  return on_communicator("ncclCommAbort", comm, [comm](Communicator& c) {
    ncclResult_t result = c.abort();
    remove_handle(comm);
    return result;
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
RY_WEAK_NAME(ncclCommFinalize);
RY_WEAK_NAME(ncclCommDestroy);
RY_WEAK_NAME(ncclCommAbort);
RY_WEAK_NAME(ncclCommGetAsyncError);
RY_WEAK_NAME(ncclCommCount);
RY_WEAK_NAME(ncclCommCuDevice);
RY_WEAK_NAME(ncclCommUserRank);
RY_WEAK_NAME(ncclGetErrorString);
RY_WEAK_NAME(ncclGetLastError);
