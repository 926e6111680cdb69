// SPDX-License-Identifier: Apache-2.0
//
// Which engines of this process share a node segment, as threads that are ranks of one node do.
// Thread-safe under `mutex`.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/memory.h"

namespace railyard::exchange {

/// The engines of this process on one node segment. One thread may end them one after another, so
/// only the last one waits for the other ranks, and what any of them uses is kept until then.
struct Company {
  std::mutex mutex;
  int staying = 0;  ///< engines that have not said farewell

  /// Of the engines on this segment; made by the first one, gone with the last.
  static std::shared_ptr<Company> of(const device::Region* segment) {
    static auto* const mutex = new std::mutex;
    static auto* const companies = new std::map<const device::Region*, std::weak_ptr<Company>>;
    std::lock_guard lock(*mutex);
    std::erase_if(*companies, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<Company>& known = (*companies)[segment];
    std::shared_ptr<Company> company = known.lock();
    if (company == nullptr) known = company = std::make_shared<Company>();
    return company;
  }
};

}  // namespace railyard::exchange
