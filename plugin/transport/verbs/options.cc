// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/options.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace railyard::verbs {
namespace {

/// Decimal, 0x or 0-octal; empty or out of range counts as not set, trailing text is ignored.
std::optional<int64_t> number(const Lookup& lookup, const char* name) {
  const char* text = lookup(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  errno = 0;
  const int64_t value = std::strtoll(text, nullptr, 0);
  if (errno != 0) return std::nullopt;
  return value;
}

/// As number(); -1 and other negative values mean "use the default" to NCCL.
template <typename T>
void read_unsigned(const Lookup& lookup, const char* name, int64_t most, T* value) {
  if (const auto given = number(lookup, name); given && *given >= 0)
    *value = static_cast<T>(std::min(*given, most));
}

void read_flag(const Lookup& lookup, const char* name, bool* value) {
  if (const auto given = number(lookup, name)) *value = *given != 0;
}

void read_text(const Lookup& lookup, const char* name, std::string* value) {
  if (const char* text = lookup(name)) *value = text;
}

std::optional<Distance> distance_named(std::string_view text) {
  if (text == "LOC" || text == "0") return Distance::kLocal;
  // Between a GPU and a NIC there is no NVLink, so the levels of NVLink equal "not at all".
  if (text == "NVL" || text == "NVB" || text == "C2C") return Distance::kLocal;
  if (text == "PIX" || text == "1") return Distance::kSwitch;
  if (text == "PXB" || text == "2" || text == "P2C" || text == "PXN") return Distance::kSwitches;
  if (text == "PHB" || text == "3") return Distance::kHostBridge;
  if (text == "SYS") return Distance::kSystem;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  if (digits) return Distance::kSystem;
  return std::nullopt;
}

}  // namespace

Options options_from(const Lookup& lookup) {
  Options options;
  read_flag(lookup, "NCCL_IB_DISABLE", &options.disabled);
  read_text(lookup, "NCCL_IB_HCA", &options.hca);
  read_unsigned(lookup, "NCCL_IB_GID_INDEX", INT32_MAX, &options.gid_index);
  read_unsigned(lookup, "NCCL_IB_ROCE_VERSION_NUM", INT32_MAX, &options.roce_version);
  if (const char* family = lookup("NCCL_IB_ADDR_FAMILY"))
    options.address_family = std::string_view(family) == "AF_INET6" ? AF_INET6 : AF_INET;
  read_text(lookup, "NCCL_IB_ADDR_RANGE", &options.address_range);
  read_unsigned(lookup, "NCCL_IB_TC", 255, &options.traffic_class);
  read_unsigned(lookup, "NCCL_IB_SL", 15, &options.service_level);
  read_unsigned(lookup, "NCCL_IB_TIMEOUT", 31, &options.timeout);
  read_unsigned(lookup, "NCCL_IB_RETRY_CNT", 7, &options.retry_count);
  read_unsigned(lookup, "NCCL_IB_PKEY", 65535, &options.pkey_index);
  read_flag(lookup, "NCCL_IB_PCI_RELAXED_ORDERING", &options.relaxed_ordering);
  read_flag(lookup, "NCCL_IB_ECE_ENABLE", &options.ece);
  read_flag(lookup, "NCCL_DMABUF_ENABLE", &options.dmabuf);
  if (const char* level = lookup("NCCL_NET_GDR_LEVEL"))
    options.gdr_level = distance_named(level).value_or(options.gdr_level);
  if (const auto read = number(lookup, "NCCL_NET_GDR_READ"))
    options.gdr_read = static_cast<int>(std::clamp<int64_t>(*read, -2, 1));
  read_flag(lookup, "NCCL_NET_FORCE_FLUSH", &options.force_flush);
  read_flag(lookup, "NCCL_GDR_FLUSH_DISABLE", &options.flush_disabled);
  read_unsigned(lookup, "RAILYARD_QPS", 64, &options.queue_pairs);
  options.queue_pairs = std::max(options.queue_pairs, 1U);
  return options;
}

}  // namespace railyard::verbs
