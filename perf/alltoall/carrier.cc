// SPDX-License-Identifier: Apache-2.0
#include "carrier.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/file_template.h"

namespace alltoall {

Counters::File Counters::ask(const char* variable, const char* suffix) {
  File file;
  if (const char* named = std::getenv(variable); named != nullptr && *named != '\0') {
    file.path = railyard::expand_file_template(named, railyard::file_template_values());
  } else {
    file.path = (std::filesystem::temp_directory_path() /
                 ("alltoall_perf." + std::to_string(getpid()) + suffix))
                    .string();
    file.own = true;
    setenv(variable, file.path.c_str(), 1);
  }
  std::error_code none;
  const auto size = std::filesystem::file_size(file.path, none);
  file.begin = none ? 0 : size;
  return file;
}

Counters::Counters()
    : railyard_(ask("RAILYARD_STATS", ".railyard")), nccl_(ask("EMULATOR_NCCL_STATS", ".nccl")) {}

Counters::~Counters() {
  for (const File& file : {railyard_, nccl_}) {
    std::error_code ignored;
    if (file.own) std::filesystem::remove(file.path, ignored);
  }
}

Counters::Bytes Counters::read(const std::vector<int>& ranks) const {
  const auto sum = [&ranks](const File& file, const char* counter) -> std::optional<uint64_t> {
    std::ifstream lines(file.path);
    lines.seekg(static_cast<std::streamoff>(file.begin));
    std::optional<uint64_t> bytes;
    for (std::string line; std::getline(lines, line);) {
      const auto entry = nlohmann::json::parse(line, nullptr, false);
      if (!entry.is_object() || !entry.contains(counter)) continue;
      if (std::count(ranks.begin(), ranks.end(), entry.value("rank", -1)) == 0) continue;
      bytes = bytes.value_or(0) + entry[counter].get<uint64_t>();
    }
    return bytes;
  };
  return {sum(railyard_, "phase1_bytes"), sum(nccl_, "p2p_internode_bytes")};
}

std::string Counters::Bytes::carrier() const {
  if (!railyard && !nccl) return "unknown";
  if (railyard.value_or(0) > 0 && nccl.value_or(0) > 0) return "both";
  if (railyard.value_or(0) > 0) return "railyard";
  return nccl.value_or(0) > 0 ? "nccl" : "none";
}

}  // namespace alltoall
