// SPDX-License-Identifier: Apache-2.0
#include "environment.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <strings.h>

#include <mutex>

#include "plugin_abi.h"
#include "version.h"

namespace railyard::emulator {
namespace {

using Lookup = const char* (*)(const char*);

const char* from_process(const char* name) { return ::getenv(name); }

Lookup load() {
  constexpr int kFirst = 22807, kSecond = 23007;
  if (nccl_version() < kFirst) return from_process;
  void* const library = open_plugin("nccl-env", ::getenv("NCCL_ENV_PLUGIN"), true);
  if (library == nullptr) return from_process;
  const int version = nccl_version();
  const auto part = [](int value) { return static_cast<uint8_t>(value % 100); };
  const uint8_t major = part(version / 10000), minor = part(version / 100), patch = part(version);
  auto* newer = version >= kSecond
                    ? static_cast<plugin::EnvV2*>(::dlsym(library, "ncclEnvPlugin_v2"))
                    : nullptr;
  if (newer != nullptr && newer->init(major, minor, patch, "", plugin::log) == ncclSuccess) {
    return newer->getEnv;
  }
  auto* older = static_cast<plugin::EnvV1*>(::dlsym(library, "ncclEnvPlugin_v1"));
  if (older != nullptr && older->init(major, minor, patch, "") == ncclSuccess) {
    return older->getEnv;
  }
  return from_process;
}

}  // namespace

const char* variable(const char* name) {
  // Not a static of the function: the plugin may itself call into this library while it loads.
  static std::once_flag once;
  static Lookup lookup = from_process;
  static thread_local bool loading = false;
  if (loading) return ::getenv(name);
  loading = true;
  std::call_once(once, [] { lookup = load(); });
  loading = false;
  return lookup(name);
}

void* open_plugin(const std::string& prefix, const char* value, bool static_allowed) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  const std::string name = value == nullptr ? "" : value;
  if (name.empty()) return ::dlopen(("lib" + prefix + ".so").c_str(), kFlags);
  if (::strcasecmp(name.c_str(), "none") == 0) return nullptr;
  if (static_allowed && ::strncasecmp(name.c_str(), "STATIC_PLUGIN", name.size()) == 0) {
    return ::dlopen(nullptr, kFlags);
  }
  void* library = ::dlopen(name.c_str(), kFlags);
  const bool full =
      name.find('/') != std::string::npos || (name.starts_with("lib") && name.ends_with(".so"));
  if (library != nullptr || full) return library;
  return ::dlopen(("lib" + prefix + "-" + name + ".so").c_str(), kFlags);
}

}  // namespace railyard::emulator
