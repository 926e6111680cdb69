// SPDX-License-Identifier: Apache-2.0
#include "base/file_template.h"

#include <unistd.h>

namespace railyard {

FileTemplateValues file_template_values() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  const std::string_view name(host);
  return {std::string(name.substr(0, name.find('.'))), static_cast<int>(getpid()), -1};
}

std::string expand_file_template(std::string_view pattern, const FileTemplateValues& values) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') {
      path += values.host;
    } else if (next == 'p') {
      path += std::to_string(values.process);
    } else if (next == 'r' && values.rank >= 0) {
      path += std::to_string(values.rank);
    } else if (next == '%') {
      path += '%';
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

}  // namespace railyard
