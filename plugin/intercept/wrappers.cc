// SPDX-License-Identifier: Apache-2.0
#include "intercept/wrappers.h"

#include <array>
#include <utility>

#include "base/fork.h"
#include "intercept/dispatch.h"

namespace railyard::intercept {
namespace {

/// The wrappers of one copy.
template <size_t kCopy>
struct Copy {
#define RY_WRAPPER(returned, name, handler, parameters, arguments)                          \
  static returned name parameters {                                                         \
    return dispatch<&NcclLibrary::name, &handler, returned>(&NcclLibrary::copy(kCopy),      \
                                                            RY_CALLER RY_UNPACK arguments); \
  }
#define RY_HANDLED(name, first, handler, parameters, arguments) \
  RY_WRAPPER(ncclResult_t, name, handler, parameters, arguments)
#define RY_TEXT(name, first, handler, parameters, arguments) \
  RY_WRAPPER(const char*, name, handler, parameters, arguments)
  RY_NCCL_FUNCTIONS(RY_HANDLED, RY_TEXT, RY_NO_ROW, RY_NO_ROW)
#undef RY_HANDLED
#undef RY_TEXT

  static std::array<const void*, kFunctions> addresses() {
    return {
#define RY_ADDRESS(name, ...) reinterpret_cast<const void*>(&Copy::name),
        RY_NCCL_FUNCTIONS(RY_ADDRESS, RY_ADDRESS, RY_NO_ROW, RY_NO_ROW)
#undef RY_ADDRESS
    };
  }
};

using Table = std::array<std::array<const void*, kFunctions>, NcclLibrary::kMostCopies>;

template <size_t... kCopies>
Table make_table(std::index_sequence<kCopies...>) {
  return {Copy<kCopies>::addresses()...};
}

const Table& table() {
  static const Table wrappers = make_table(std::make_index_sequence<NcclLibrary::kMostCopies>());
  return wrappers;
}

}  // namespace

/// Destructors of the program may call NCCL when those of the thread have already run: then a last
/// session is made and never freed.
Session& Session::current(const NcclLibrary& nccl) {
  struct Mine {
    std::array<Session*, NcclLibrary::kMostCopies> sessions{};
    uint32_t generation = 0;  ///< of the process that made them
  };
  static thread_local Mine mine;
  Session*& session = mine.sessions[nccl.index];
  if (session != nullptr && mine.generation == fork_generation()) return *session;

  struct AtThreadEnd {
    Mine* sessions;
    ~AtThreadEnd() {
      for (Session*& one : sessions->sessions) delete std::exchange(one, nullptr);
    }
  };
  if (mine.generation != fork_generation()) mine.sessions = {};  // the parent's, left alone
  session = new Session(Runtime::instance(nccl));
  mine.generation = fork_generation();
  static thread_local const AtThreadEnd at_thread_end{&mine};
  return *session;
}

std::optional<Function> function_named(std::string_view name) {
  if (!name.starts_with("nccl")) return std::nullopt;
  for (size_t i = 0; i < kFunctions; ++i) {
    if (name == kFunctionNames[i]) return static_cast<Function>(i);
  }
  return std::nullopt;
}

const void* wrapper(Function function, size_t copy) {
  return table()[copy][static_cast<size_t>(function)];
}

bool is_wrapper(const void* address) {
  for (const auto& copy : table()) {
    for (const void* one : copy) {
      if (one == address) return true;
    }
  }
  return false;
}

}  // namespace railyard::intercept
