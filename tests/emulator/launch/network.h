// SPDX-License-Identifier: Apache-2.0
//
// A network for an emulated cluster to measure on: a namespace per node, a veth link per GPU (its
// NIC), a bridge per rail, a spine that joins the rails, and a management network apart.
//
//   node 0                         switches                        node 1
//   rail0 --- link ---> [rail 0] --- up ---> [spine] <--- up --- [rail 1] <--- link --- rail1
//   rail1 --- link ---> [rail 1] …
//   mgmt  ------------> [management] <------------------------------------------------ mgmt
//
// Links and uplinks are shaped with tbf, each way. Rail g's NIC of node n has the address
// 10.g.x.y with x.y = n + 1, its management port 10.128.x.y; what is sent from a NIC's address
// leaves through that NIC. Queues are long and TCP's windows short, so that nothing is dropped, as
// in the lossless networks of GPU clusters.
//
// Namespaces have no names and nothing outside them is touched: all is gone when the last process
// in them and the launcher are, however these end. Needs iproute2, and root or user namespaces.
//
// Thread-bound; make() moves the calling process into the namespace of the switches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace railyard::emulator {

/// How rails are joined.
struct FabricKind {
  const char* name;
  int oversubscription;  ///< of the spine; 1: it blocks nothing, 0: there is none
  const char* meaning;
};

/// All that can be asked for.
const std::vector<FabricKind>& fabric_kinds();
/// Null: there is none of that name.
const FabricKind* find_fabric(const std::string& name);

class Network {
 public:
  /// One link per GPU of a node, `link_mbit` each way. On failure returns null and says why.
  static std::unique_ptr<Network> make(const FabricKind& kind, const std::vector<int>& gpus,
                                       int link_mbit, std::string* error);

  /// Namespace of a node, for setns().
  int node(int index) const { return nodes_[static_cast<size_t>(index)].get(); }
  /// Of its management port.
  static std::string address(int node);

 private:
  std::string lay_out(const FabricKind& kind, const std::vector<int>& gpus, int link_mbit);

  UniqueFd switches_;
  std::vector<UniqueFd> nodes_;
};

}  // namespace railyard::emulator
