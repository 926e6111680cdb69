// SPDX-License-Identifier: Apache-2.0
//
// Whether railyard takes a communicator over. Pure: follows from what all ranks said, so that every
// rank comes to the same answer without asking.
#pragma once

#include <span>
#include <string>

#include "base/config.h"
#include "comm/record.h"
#include "topology/topology.h"

namespace railyard::comm {

struct Decision {
  bool take_over = false;
  std::string why;
  /// Somebody has to mend something: worth a warning.
  bool fault = false;
};

/// `topology` is built from the places of `introductions`.
Decision decide(std::span<const Introduction> introductions, const topology::Topology& topology,
                CommsMode mode);

}  // namespace railyard::comm
