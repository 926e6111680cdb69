// SPDX-License-Identifier: Apache-2.0
//
// Regions this process has mapped, by the random id of the memory behind them. Memory is mapped at
// one address only, also where several communicators, or several ranks of this very process, use
// it. Device memory is an exception: each GPU that accesses it has a mapping of its own.
//
// Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"
#include "comm/record.h"
#include "device/memory.h"

namespace railyard::comm {

class RegionCache {
 public:
  /// A region made here, by the GPU `device`.
  void add(const Pool& pool, CUdevice device, const std::shared_ptr<device::Region>& region);

  /// The region of `pool` for `device`: the one known, or a new import of `fd`. Needs the context
  /// current.
  Result<std::shared_ptr<device::Region>> map(const device::Driver& driver, CUdevice device,
                                              const Pool& pool, UniqueFd fd);

 private:
  using Key = std::pair<Secret, CUdevice>;
  static Key key_of(const Pool& pool, CUdevice device);
  void forget_the_gone();

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<device::Region>> regions_;
};

}  // namespace railyard::comm
