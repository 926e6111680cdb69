// SPDX-License-Identifier: Apache-2.0
//
// The NCCL functions that railyard.map lets out: programs reach these instead of NCCL's own.
// Nothing happens before the first call: a program that never uses NCCL never notices.
#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

#include <nccl.h>

#include "base/fork.h"
#include "base/log.h"
#include "intercept/group.h"
#include "intercept/life.h"
#include "intercept/nccl_library.h"
#include "intercept/runtime.h"

#define RY_EXPORT extern "C" __attribute__((visibility("default")))
#define RY_CALLER __builtin_extract_return_addr(__builtin_return_address(0))

// Absent from the headers of older releases, whose libraries lack them too.
RY_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
RY_EXPORT ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                                    ncclComm_t comm, cudaStream_t stream);

namespace railyard::intercept {
namespace {

/// A thread's part in the interception.
struct Session {
  explicit Session(Runtime& process) : runtime(process) {}
  Runtime& runtime;
  const uint32_t generation = fork_generation();  ///< a forked child starts afresh
  Group group{runtime};
  Life life{runtime, group};

  /// Destructors of the program may call NCCL when those of the thread have already run: then a
  /// last session is made and never freed.
  static Session& current(const NcclLibrary& nccl) {
    static thread_local Session* session = nullptr;
    struct AtThreadEnd {
      Session** mine;
      ~AtThreadEnd() { delete std::exchange(*mine, nullptr); }
    };
    if (session != nullptr && session->generation != fork_generation()) session = nullptr;
    if (session == nullptr) {
      session = new Session(Runtime::instance(nccl));
      static thread_local const AtThreadEnd at_thread_end{&session};
    }
    return *session;
  }
};

/// Hands a call to `kOurs`, a member of Group or Life, or straight to NCCL: when NCCL itself is the
/// caller, and when railyard is switched off.
template <auto kReal, auto kOurs, typename... Args>
ncclResult_t dispatch(const void* caller, Args... args) {
  try {
    const NcclLibrary* const nccl = NcclLibrary::get();
    if (nccl == nullptr) return ncclSystemError;
    if (inside_nccl() || nccl->contains(caller)) return forward(nccl->*kReal, args...);
    Session& session = Session::current(*nccl);
    if (!session.runtime.manager.enabled()) return forward(nccl->*kReal, args...);
    if constexpr (std::is_invocable_v<decltype(kOurs), Group&, Args...>) {
      return std::invoke(kOurs, session.group, args...);
    } else {
      return std::invoke(kOurs, session.life, args...);
    }
  } catch (const std::exception& failure) {
    log::warn("an NCCL call failed: %s", failure.what());
    return ncclSystemError;
  }
}

}  // namespace
}  // namespace railyard::intercept

using railyard::intercept::dispatch;
using railyard::intercept::Group;
using railyard::intercept::Life;
using railyard::intercept::NcclLibrary;

RY_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return dispatch<&NcclLibrary::ncclGetUniqueId, &Life::get_unique_id>(RY_CALLER, id);
}

RY_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return dispatch<&NcclLibrary::ncclCommInitRank, &Life::init_rank>(RY_CALLER, comm, ranks, id,
                                                                    rank);
}

RY_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id,
                                              int rank, ncclConfig_t* config) {
  return dispatch<&NcclLibrary::ncclCommInitRankConfig, &Life::init_rank_config>(
      RY_CALLER, comm, ranks, id, rank, config);
}

RY_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                                     ncclConfig_t* config) {
  return dispatch<&NcclLibrary::ncclCommSplit, &Life::split>(RY_CALLER, comm, color, key, child,
                                                             config);
}

RY_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return dispatch<&NcclLibrary::ncclCommFinalize, &Life::finalize>(RY_CALLER, comm);
}

RY_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return dispatch<&NcclLibrary::ncclCommDestroy, &Life::destroy>(RY_CALLER, comm);
}

RY_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return dispatch<&NcclLibrary::ncclCommAbort, &Life::abort>(RY_CALLER, comm);
}

RY_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  return dispatch<&NcclLibrary::ncclCommRevoke, &Life::revoke>(RY_CALLER, comm, flags);
}

RY_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return dispatch<&NcclLibrary::ncclCommGetAsyncError, &Life::get_async_error>(RY_CALLER, comm,
                                                                               state);
}

RY_EXPORT const char* ncclGetLastError(ncclComm_t comm) {
  using namespace railyard::intercept;
  const NcclLibrary* const nccl = NcclLibrary::get();
  return nccl == nullptr ? "" : Runtime::instance(*nccl).last_error.text(comm);
}

RY_EXPORT ncclResult_t ncclGroupStart() {
  return dispatch<&NcclLibrary::ncclGroupStart, &Group::start>(RY_CALLER);
}

RY_EXPORT ncclResult_t ncclGroupEnd() {
  return dispatch<&NcclLibrary::ncclGroupEnd, &Group::end>(RY_CALLER);
}

RY_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  return dispatch<&NcclLibrary::ncclGroupSimulateEnd, &Group::simulate_end>(RY_CALLER, info);
}

RY_EXPORT ncclResult_t ncclSend(const void* buffer, size_t count, ncclDataType_t type, int peer,
                                ncclComm_t comm, cudaStream_t stream) {
  return dispatch<&NcclLibrary::ncclSend, &Group::send>(RY_CALLER, buffer, count, type, peer, comm,
                                                        stream);
}

RY_EXPORT ncclResult_t ncclRecv(void* buffer, size_t count, ncclDataType_t type, int peer,
                                ncclComm_t comm, cudaStream_t stream) {
  return dispatch<&NcclLibrary::ncclRecv, &Group::recv>(RY_CALLER, buffer, count, type, peer, comm,
                                                        stream);
}

RY_EXPORT ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                                    ncclComm_t comm, cudaStream_t stream) {
  return dispatch<&NcclLibrary::ncclAlltoAll, &Group::all_to_all>(RY_CALLER, from, to, count, type,
                                                                  comm, stream);
}
