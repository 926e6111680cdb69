// SPDX-License-Identifier: Apache-2.0
//
// What a caller asks for: the messages of one group on one communicator.
#pragma once

#include <cstdint>
#include <vector>

namespace railyard::exchange {

struct Message {
  int peer = 0;
  void* buffer = nullptr;  ///< never written for a send
  uint64_t bytes = 0;
};

/// Order within each list is program order.
struct Exchange {
  std::vector<Message> sends, recvs;
  bool empty() const { return sends.empty() && recvs.empty(); }
};

}  // namespace railyard::exchange
