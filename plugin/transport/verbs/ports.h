// SPDX-License-Identifier: Apache-2.0
//
// The RDMA ports of this machine that may be used: active, InfiniBand or Ethernet, and not ruled
// out by NCCL_IB_HCA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/options.h"
#include "transport/verbs/placement.h"

namespace railyard::verbs {

struct Port {
  std::string device;  ///< "mlx5_0"
  uint8_t number = 1;
  PciPlace place;
  int rail = 0;  ///< position among the node's usable ports in PCI order

  /// "mlx5_0 port 1"
  std::string text() const { return device + " port " + std::to_string(number); }
};

/// In PCI order; devices that are not on PCI come last, by name. Fails, listing what was found and
/// why it was refused, if none is left.
Result<std::vector<Port>> usable_ports(const Library& library, const Options& options);

/// kUnavailable if the device is gone.
Result<Context> open_device(const Library& library, const std::string& name);

/// A failure of the verbs library: `error_number` with its text, and the remedy if locked memory
/// may be what ran out.
Status verbs_error(int error_number, const std::string& what);

}  // namespace railyard::verbs
