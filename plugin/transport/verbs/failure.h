// SPDX-License-Identifier: Apache-2.0
//
// What went wrong, in words for the person who has to put it right. Pure.
#pragma once

#include <string>

#include "base/status.h"
#include "transport/verbs/nic.h"

namespace railyard::verbs {

/// `peer` cannot be reached to exchange queue pairs.
Status unreachable(const std::string& peer, const Status& why);
/// The line to `peer` ended without a goodbye.
Status lost(const std::string& peer, const Status& why);
/// A completion with an error on a queue pair from `nic` to `peer`'s `peer_nic`.
Status completion_failure(const std::string& peer, const Nic& nic, const NicRecord& peer_nic,
                          const ibv_wc& completion);

}  // namespace railyard::verbs
