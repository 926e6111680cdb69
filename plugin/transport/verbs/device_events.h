// SPDX-License-Identifier: Apache-2.0
//
// What a device reports outside of any completion: ports that go down and come up, addresses that
// change, queues and devices that fail. All of it is logged with its meaning; what ends links ends
// them. Thread-bound.
#pragma once

#include <string>

#include "transport/verbs/home.h"

namespace railyard::verbs {

/// Takes all events that NIC `nic` of `home` has.
void read_device_events(Home& home, size_t nic);

/// Fails every link that has a queue pair on the NIC.
void fail_links_of(Home& home, size_t nic, const std::string& why);

}  // namespace railyard::verbs
