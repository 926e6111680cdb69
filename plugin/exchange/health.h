// SPDX-License-Identifier: Apache-2.0
//
// The first thing that went wrong on one communicator at one rank, in words. Logged once, by
// whoever reports it first. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/layout.h"

namespace railyard::exchange {

class Health {
 public:
  /// `names[r]` says who rank r is; `status` is this rank's, in the node segment.
  Health(std::vector<std::string> names, const kernels::RankStatus* status);

  /// ok, or the first failure; looks at what the kernel reported.
  Status error();
  void fail(Status status);
  /// Why flows between this rank and `peer` are broken, for when a kernel stumbles over one.
  void lost(int peer, const std::string& why);

 private:
  Status describe(const kernels::FaultRecord& record);
  void settle(Status status);

  const std::vector<std::string> names_;
  const kernels::RankStatus* const status_;
  std::mutex mutex_;  ///< guards all below
  Status error_;
  std::map<int, std::string> lost_;
};

}  // namespace railyard::exchange
