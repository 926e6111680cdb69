// SPDX-License-Identifier: Apache-2.0
#include "base/nccl_env.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

extern char** environ;

namespace railyard {
namespace {

constexpr size_t kMaxText = 1023;  ///< NCCL's limit for a name or a value

std::string home_directory() {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(16 * 1024);
  if (getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return "";
  }
  return found->pw_dir;
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

NcclEnv NcclEnv::load(const Environment& environment) {
  const auto named = environment.find("NCCL_CONF_FILE");
  const bool has_file = named != environment.end() && !named->second.empty();
  return load(environment,
              {has_file ? named->second : home_directory() + "/.nccl.conf", "/etc/nccl.conf"});
}

NcclEnv NcclEnv::load(const Environment& environment, std::initializer_list<std::string> files) {
  NcclEnv result;
  result.values_ = environment;
  for (const std::string& path : files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) continue;
    result.add_file(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return result;
}

void NcclEnv::add_file(std::string_view content) {
  while (!content.empty()) {
    const std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(content.size(), line.size() + 1));
    const size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string_view::npos) continue;
    values_.emplace(line.substr(0, std::min(equals, kMaxText)), line.substr(equals + 1, kMaxText));
  }
}

std::string NcclEnv::text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? "" : found->second;
}

const char* NcclEnv::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : found->second.c_str();
}

int64_t NcclEnv::number(const std::string& name, int64_t otherwise) const {
  const std::string value = text(name);
  if (value.empty()) return otherwise;
  const int saved = errno;
  errno = 0;
  const long long parsed = std::strtoll(value.c_str(), nullptr, 0);
  const bool fits = errno == 0;
  errno = saved;
  return fits ? parsed : otherwise;
}

}  // namespace railyard
