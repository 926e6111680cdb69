// SPDX-License-Identifier: Apache-2.0
#include "environment.h"

#include <dlfcn.h>
#include <pwd.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>

#include "plugin_abi.h"
#include "version.h"

namespace railyard::emulator {
namespace {

using Lookup = const char* (*)(const char*);

const char* from_process(const char* name) { return ::getenv(name); }

std::atomic<Lookup> lookup{from_process};

/// Lines NAME=VALUE, taken as they are; what the environment has rules over them.
void apply_file(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (line.starts_with("#") || equals == std::string::npos) continue;
    ::setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 0);
  }
}

void apply_files() {
  const char* named = nccl_version() >= 22304 ? ::getenv("NCCL_CONF_FILE") : nullptr;
  const passwd* user = ::getpwuid(::getuid());
  if (named != nullptr && *named != '\0') {
    apply_file(named);
  } else if (user != nullptr) {
    apply_file(std::string(user->pw_dir) + "/.nccl.conf");
  }
  apply_file("/etc/nccl.conf");
}

/// A plugin that has begun; it ends with the process.
Lookup use(ncclResult_t (*finalize)(), Lookup answer) {
  static ncclResult_t (*at_end)() = nullptr;
  at_end = finalize;
  if (finalize != nullptr) ::atexit([] { at_end(); });
  return answer;
}

Lookup load() {
  apply_files();
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
    return use(newer->finalize, newer->getEnv);
  }
  auto* older = static_cast<plugin::EnvV1*>(::dlsym(library, "ncclEnvPlugin_v1"));
  if (older != nullptr && older->init(major, minor, patch, "") == ncclSuccess) {
    return use(older->finalize, older->getEnv);
  }
  return from_process;
}

}  // namespace

const char* variable(const char* name) {
  static std::once_flag once;
  static thread_local bool loading = false;
  if (loading) return ::getenv(name);  // the plugin calls into this library while it loads
  loading = true;
  std::call_once(once, [] { lookup = load(); });
  loading = false;
  return lookup.load()(name);
}

std::optional<long long> number_variable(const char* name) {
  const char* text = variable(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return ::strtoll(text, nullptr, 0);
}

const char* variable_so_far(const char* name) { return lookup.load()(name); }

bool switched_off(const char* value) {
  return value != nullptr && ::strcasecmp(value, "none") == 0;
}

void* open_plugin(const std::string& prefix, const char* value, bool static_allowed) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  const std::string name = value == nullptr ? "" : value;
  if (name.empty()) return ::dlopen(("lib" + prefix + ".so").c_str(), kFlags);
  if (switched_off(value)) return nullptr;
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
