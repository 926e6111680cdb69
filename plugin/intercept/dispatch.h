// SPDX-License-Identifier: Apache-2.0
//
// The way of a program's call into railyard: to the thread's Group or Life, or straight on to NCCL.
#pragma once

#include <exception>
#include <functional>
#include <type_traits>

#include <nccl.h>

#include "base/log.h"
#include "intercept/group.h"
#include "intercept/life.h"
#include "intercept/nccl_library.h"
#include "intercept/runtime.h"

namespace railyard::intercept {

/// A thread's part in the interception of one copy of NCCL.
struct Session {
  explicit Session(Runtime& process) : runtime(process) {}
  Runtime& runtime;
  Group group{runtime};
  Life life{runtime, group};

  static Session& current(const NcclLibrary& nccl);
};

inline const char* last_error(Runtime& runtime, ncclComm_t comm) {
  return runtime.last_error.text(comm);
}

/// What a call returns that cannot be made.
template <typename Returned>
constexpr Returned kFailed = ncclSystemError;
template <>
inline constexpr const char* kFailed<const char*> = "";

/// Hands a call to `kOurs`, a member of Group or Life or a function of the Runtime, or straight to
/// NCCL: when NCCL itself is the caller, and when railyard is switched off.
template <auto kReal, auto kOurs, typename Returned, typename... Args>
Returned dispatch(const NcclLibrary* nccl, const void* caller, Args... args) {
  if (nccl == nullptr) return kFailed<Returned>;
  try {
    if (inside_nccl() || nccl->contains(caller)) return forward(nccl->*kReal, args...);
    Session& session = Session::current(*nccl);
    if (!session.runtime.manager.enabled()) return forward(nccl->*kReal, args...);
    if constexpr (std::is_invocable_v<decltype(kOurs), Group&, Args...>) {
      return std::invoke(kOurs, session.group, args...);
    } else if constexpr (std::is_invocable_v<decltype(kOurs), Life&, Args...>) {
      return std::invoke(kOurs, session.life, args...);
    } else {
      return std::invoke(kOurs, session.runtime, args...);
    }
  } catch (const std::exception& failure) {
    log::warn("an NCCL call failed: %s", failure.what());
    return kFailed<Returned>;
  }
}

}  // namespace railyard::intercept

#define RY_CALLER __builtin_extract_return_addr(__builtin_return_address(0))
/// For lists that follow other arguments.
#define RY_UNPACK(...) __VA_OPT__(, ) __VA_ARGS__
