// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/gid.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace railyard::verbs {
namespace {

constexpr GidBytes kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr GidBytes kMappedMulticast = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr size_t kMappedPrefixBytes = 12;

bool same_prefix(const GidBytes& a, const GidBytes& b, size_t bytes) {
  return std::equal(a.begin(), a.begin() + static_cast<ptrdiff_t>(bytes), b.begin());
}

int roce_version_of(const std::string& type) {
  if (type == "IB/RoCE v1" || type == "RoCE v1") return 1;
  if (type == "RoCE v2") return 2;
  return 0;
}

}  // namespace

bool is_zero(const GidBytes& gid) { return gid == GidBytes{}; }

bool is_link_local(const GidBytes& gid) {
  constexpr GidBytes kLinkLocal = {0xfe, 0x80};
  return same_prefix(gid, kLinkLocal, 8);
}

int family_of(const GidBytes& gid) {
  return same_prefix(gid, kMapped, kMappedPrefixBytes) ||
                 same_prefix(gid, kMappedMulticast, kMappedPrefixBytes)
             ? AF_INET
             : AF_INET6;
}

std::string text_of(const GidBytes& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  return text;
}

AddressRange AddressRange::parse(const std::string& text, int family) {
  AddressRange range;
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return range;
  const bool v4 = family == AF_INET;
  const size_t at = v4 ? kMappedPrefixBytes : 0;
  if (inet_pton(family, text.substr(0, slash).c_str(), range.address_.data() + at) != 1)
    return AddressRange();
  const int bits = std::clamp(std::atoi(text.c_str() + slash + 1), 0, v4 ? 32 : 128);
  range.family_ = family;
  range.prefix_bits_ = bits + static_cast<int>(at) * 8;
  return range;
}

bool AddressRange::contains(const GidBytes& gid) const {
  if (family_ == 0) return true;
  if (family_of(gid) != family_) return false;
  // The first 12 bytes of an IPv4 GID say only that it is one, which is known by now.
  for (int bit = family_ == AF_INET ? static_cast<int>(kMappedPrefixBytes) * 8 : 0;
       bit < prefix_bits_; ++bit) {
    const auto byte = static_cast<size_t>(bit / 8);
    if (((gid[byte] ^ address_[byte]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

int choose_roce_gid(std::span<const GidEntry> table, const GidPreference& preference) {
  const auto valid = [](const GidBytes& gid) { return !is_zero(gid) && !is_link_local(gid); };
  size_t best = 0;
  for (size_t i = 1; i < table.size(); ++i) {
    const GidEntry& candidate = table[i];
    const GidEntry& current = table[best];
    const int family = family_of(candidate.bytes);
    if (family != preference.family || !preference.range.contains(candidate.bytes)) continue;
    if (family_of(current.bytes) != family) {
      best = i;
      continue;
    }
    if (!valid(candidate.bytes)) continue;
    const bool differs = candidate.roce_version != current.roce_version || !valid(current.bytes);
    if (differs && candidate.roce_version == preference.roce_version) best = i;
  }
  return static_cast<int>(best);
}

std::vector<GidEntry> read_gid_table(const Library& library, ibv_context* context,
                                     const std::string& device, uint8_t port, int entries,
                                     const std::string& sysfs) {
  std::vector<GidEntry> table(static_cast<size_t>(std::max(entries, 0)));
  const std::string types = sysfs + "/class/infiniband/" + device + "/ports/" +
                            std::to_string(port) + "/gid_attrs/types/";
  for (size_t i = 0; i < table.size(); ++i) {
    union ibv_gid gid {};
    if (library.query_gid(context, port, static_cast<int>(i), &gid) != 0) continue;
    std::memcpy(table[i].bytes.data(), gid.raw, sizeof(gid.raw));
    if (is_zero(table[i].bytes)) continue;
    std::ifstream file(types + std::to_string(i));
    std::string type;
    if (std::getline(file, type)) table[i].roce_version = roce_version_of(type);
  }
  return table;
}

}  // namespace railyard::verbs
