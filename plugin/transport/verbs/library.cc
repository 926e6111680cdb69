// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/library.h"

#include <dlfcn.h>

#include <cstring>

#include "base/log.h"

namespace railyard::verbs {
namespace {

template <typename Function>
void find(void* handle, const char* name, const char* version, Function** function) {
  void* symbol = dlvsym(handle, name, version);
  static_assert(sizeof(symbol) == sizeof(*function));
  std::memcpy(function, &symbol, sizeof(symbol));
}

Result<const Library*> open_library(const std::string& soname) {
  void* handle = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status::error(Code::kUnavailable,
                         "cannot load %s: %s; install libibverbs1 and ibverbs-providers (Debian, "
                         "Ubuntu) or libibverbs (Fedora, RHEL), or set RAILYARD_TRANSPORT=tcp",
                         soname.c_str(), dlerror());
  auto* library = new Library;  // never freed, like the handle
#define RY_FIND(name, version, result, arguments) \
  find(handle, "ibv_" #name, version, &library->name);
  RY_VERBS_FUNCTIONS(RY_FIND)
  RY_VERBS_OPTIONAL_FUNCTIONS(RY_FIND)
#undef RY_FIND
  const char* missing = nullptr;
#define RY_REQUIRE(name, version, result, arguments) \
  if (library->name == nullptr) missing = "ibv_" #name "@" version;
  RY_VERBS_FUNCTIONS(RY_REQUIRE)
#undef RY_REQUIRE
  if (missing != nullptr)
    return Status::error(Code::kUnavailable,
                         "%s has no %s: install the libibverbs of rdma-core 17 or newer, or set "
                         "RAILYARD_TRANSPORT=tcp",
                         soname.c_str(), missing);
  // Keeps a child of fork() from sharing pages the NIC writes to. Needless on kernels that copy
  // pinned pages at fork; there it fails or does nothing.
  if (const int error = library->fork_init(); error != 0)
    log::trace("ibv_fork_init: %s", std::strerror(error));
  return library;
}

}  // namespace

Result<const Library*> Library::load(const std::string& soname) {
  static const Result<const Library*> loaded = open_library(soname);
  return loaded;
}

}  // namespace railyard::verbs
