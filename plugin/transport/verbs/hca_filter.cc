// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/hca_filter.h"

#include <cstdlib>

namespace railyard::verbs {
namespace {

constexpr size_t kMaxEntries = 32;

bool take_prefix(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

HcaFilter HcaFilter::parse(std::string_view text) {
  HcaFilter filter;
  filter.exclude_ = take_prefix(&text, '^');
  filter.exact_ = take_prefix(&text, '=');
  while (!text.empty() && filter.entries_.size() < kMaxEntries) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const size_t colon = item.find(':');
    if (item.empty() || colon == 0) continue;
    Entry entry;
    entry.device = std::string(item.substr(0, colon));
    if (colon != std::string_view::npos)
      entry.port = std::atoi(std::string(item.substr(colon + 1)).c_str());
    filter.entries_.push_back(std::move(entry));
  }
  return filter;
}

bool HcaFilter::listed(std::string_view device, int port) const {
  if (entries_.empty()) return true;
  for (const Entry& entry : entries_) {
    const bool named =
        exact_ ? device == entry.device : device.substr(0, entry.device.size()) == entry.device;
    if (named && (entry.port == -1 || entry.port == port)) return true;
  }
  return false;
}

bool HcaFilter::allows(std::string_view device, int port) const {
  return listed(device, port) != exclude_;
}

}  // namespace railyard::verbs
