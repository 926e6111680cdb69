// SPDX-License-Identifier: Apache-2.0
//
// NCCL_IB_HCA: which ports of which RDMA devices may be used.
//
//   [^][=]name[:port]{,name[:port]}     ^ all but these, = whole names instead of beginnings
//
// Read as NCCL reads it: an empty list matches everything, empty entries and entries without a name
// are ignored, blanks count, what follows the port is ignored, at most 32 entries. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace railyard::verbs {

class HcaFilter {
 public:
  static HcaFilter parse(std::string_view text);

  /// Whether the port may be used.
  bool allows(std::string_view device, int port) const;

 private:
  struct Entry {
    std::string device;
    int port = -1;  ///< -1: any
  };

  bool listed(std::string_view device, int port) const;

  bool exclude_ = false;
  bool exact_ = false;
  std::vector<Entry> entries_;
};

}  // namespace railyard::verbs
