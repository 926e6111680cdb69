// SPDX-License-Identifier: Apache-2.0
//
// NCCL's way to name devices and interfaces (NCCL_IB_HCA, NCCL_SOCKET_IFNAME): comma-separated
// beginnings of names, each with an optional ":port"; "=" in front asks for whole names, "^" in
// front (before "=") for everything else. An empty list names everything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace railyard {

class NameList {
 public:
  static constexpr int kAnyPort = -1;

  /// Never fails: NCCL takes what it can read and ignores empty entries; so does this. Entries
  /// beyond the 32nd are ignored. `ports` false: a colon is part of the name.
  static NameList parse(std::string_view text, bool ports);

  bool matches(std::string_view name, int port = kAnyPort) const;

 private:
  struct Entry {
    std::string name;
    int port;
  };
  bool exclude_ = false, exact_ = false;
  std::vector<Entry> entries_;
};

}  // namespace railyard
