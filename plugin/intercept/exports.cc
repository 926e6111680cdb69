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

// Declared here for headers of older releases, which lack some.
#define RY_DECLARE(returned, name, parameters) \
  extern "C" __attribute__((visibility("default"))) returned name parameters;
#define RY_HANDLED(name, first, handler, parameters, arguments) \
  RY_DECLARE(ncclResult_t, name, parameters)
#define RY_TEXT(name, first, handler, parameters, arguments) \
  RY_DECLARE(const char*, name, parameters)
RY_NCCL_FUNCTIONS(RY_HANDLED, RY_TEXT, RY_NO_ROW, RY_NO_ROW)
#undef RY_HANDLED
#undef RY_TEXT

#define RY_CALLER __builtin_extract_return_addr(__builtin_return_address(0))

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

const char* last_error(Runtime& runtime, ncclComm_t comm) { return runtime.last_error.text(comm); }

/// What a call returns that cannot be made.
template <typename Returned>
constexpr Returned kFailed = ncclSystemError;
template <>
constexpr const char* kFailed<const char*> = "";

/// Hands a call to `kOurs`, a member of Group or Life or a function of the Runtime, or straight to
/// NCCL: when NCCL itself is the caller, and when railyard is switched off.
template <auto kReal, auto kOurs, typename Returned, typename... Args>
Returned dispatch(const void* caller, Args... args) {
  try {
    const NcclLibrary* const nccl = NcclLibrary::get();
    if (nccl == nullptr) return kFailed<Returned>;
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

}  // namespace
}  // namespace railyard::intercept

using railyard::intercept::dispatch;
using railyard::intercept::Group;
using railyard::intercept::last_error;
using railyard::intercept::Life;
using railyard::intercept::NcclLibrary;

#define RY_UNPACK(...) __VA_OPT__(, ) __VA_ARGS__
#define RY_EXPORT(returned, name, handler, parameters, arguments)                           \
  returned name parameters {                                                                \
    return dispatch<&NcclLibrary::name, &handler, returned>(RY_CALLER RY_UNPACK arguments); \
  }
#define RY_HANDLED(name, first, handler, parameters, arguments) \
  RY_EXPORT(ncclResult_t, name, handler, parameters, arguments)
#define RY_TEXT(name, first, handler, parameters, arguments) \
  RY_EXPORT(const char*, name, handler, parameters, arguments)
RY_NCCL_FUNCTIONS(RY_HANDLED, RY_TEXT, RY_NO_ROW, RY_NO_ROW)
