// SPDX-License-Identifier: Apache-2.0
#include "base/name_list.h"

#include <algorithm>
#include <cstdlib>

namespace railyard {
namespace {

constexpr size_t kMaxEntries = 32;

}  // namespace

NameList NameList::parse(std::string_view text, bool ports) {
  NameList list;
  if (text.starts_with('^')) {
    list.exclude_ = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    list.exact_ = true;
    text.remove_prefix(1);
  }
  while (!text.empty() && list.entries_.size() < kMaxEntries) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const size_t colon = ports ? entry.find(':') : std::string_view::npos;
    const std::string_view name = entry.substr(0, colon);
    if (name.empty()) continue;
    int port = kAnyPort;
    if (colon != std::string_view::npos) {
      port =
          static_cast<int>(std::strtol(std::string(entry.substr(colon + 1)).c_str(), nullptr, 10));
    }
    list.entries_.push_back({std::string(name), port});
  }
  return list;
}

bool NameList::matches(std::string_view name, int port) const {
  const bool listed =
      entries_.empty() || std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        if (entry.port != kAnyPort && port != kAnyPort && entry.port != port) return false;
        return exact_ ? name == entry.name : name.starts_with(entry.name);
      });
  return listed != exclude_;
}

}  // namespace railyard
