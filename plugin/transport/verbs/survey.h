// SPDX-License-Identifier: Apache-2.0
//
// What survey() and make_verbs() find out together: usable ports, those one GPU uses, opened, and
// where its memory should be.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "transport/verbs/nic.h"
#include "transport/verbs/ports.h"
#include "transport/verbs/registration.h"

namespace railyard::verbs {

struct Machine {
  std::vector<Port> ports;                 ///< usable, in PCI order
  std::vector<int> chosen;                 ///< indices into ports
  std::vector<std::unique_ptr<Nic>> nics;  ///< of chosen, opened
  MemoryChoice memory;
};

/// `options` must outlive the result.
Result<Machine> look_around(const Library& library, const Options& options);

}  // namespace railyard::verbs
