// SPDX-License-Identifier: Apache-2.0
//
// Which GID of a RoCE port to use: NCCL's choice, so that both libraries take the same network.
//
// choose_roce_gid() is pure; read_gid_table() asks the device and sysfs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/verbs/library.h"

namespace railyard::verbs {

using GidBytes = std::array<uint8_t, 16>;

struct GidEntry {
  GidBytes bytes{};
  int roce_version = 0;  ///< 1 or 2; 0: unknown
};

bool is_zero(const GidBytes& gid);
/// fe80::/64: reaches no further than its own subnet.
bool is_link_local(const GidBytes& gid);
/// AF_INET for an IPv4 address in IPv6 clothes, else AF_INET6.
int family_of(const GidBytes& gid);
/// As an IPv6 address.
std::string text_of(const GidBytes& gid);

/// The addresses that NCCL_IB_ADDR_RANGE allows.
class AddressRange {
 public:
  /// "10.0.0.0/8". As in NCCL, what cannot be read in `family` allows everything.
  static AddressRange parse(const std::string& text, int family);
  bool contains(const GidBytes& gid) const;

 private:
  int family_ = 0;
  GidBytes address_{};  ///< as in a GID of the family
  int prefix_bits_ = 0;
};

struct GidPreference {
  int family = 2;  ///< AF_INET or AF_INET6
  int roce_version = 2;
  AddressRange range;
};

/// An index into `table`; 0 if nothing better is there. REQUIRES: a table that is not empty.
int choose_roce_gid(std::span<const GidEntry> table, const GidPreference& preference);

/// `sysfs` is "/sys". Entries that cannot be read are zero.
std::vector<GidEntry> read_gid_table(const Library& library, ibv_context* context,
                                     const std::string& device, uint8_t port, int entries,
                                     const std::string& sysfs);

}  // namespace railyard::verbs
