// SPDX-License-Identifier: Apache-2.0
//
// What all links of one carrier share. Owned by the transport; thread-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/nic.h"
#include "transport/verbs/options.h"
#include "transport/verbs/waiter.h"

namespace railyard::verbs {

class Link;

/// The owner of a queue pair number of one NIC.
struct Route {
  Link* link = nullptr;
  size_t pair = 0;  ///< index among the link's queue pairs
};

struct Home {
  Options options;
  const Library* library = nullptr;
  std::unique_ptr<Waiter> waiter;
  std::vector<std::unique_ptr<Nic>> nics;
  Endpoint self;
  transport::Area staging, landing;
  transport::Counters counters;
  uint64_t unsent = 0;  ///< cells and credits not yet handed to a NIC
  int64_t leaving = 0;  ///< closed links whose last sends are not yet acknowledged
  std::vector<std::unordered_map<uint32_t, Route>> routes;  ///< by NIC, by queue pair number
  std::vector<transport::LinkId> downs;                     ///< links whose failure is unreported
};

}  // namespace railyard::verbs
