// SPDX-License-Identifier: Apache-2.0
#include "comm/region_cache.h"

namespace railyard::comm {

RegionCache::Key RegionCache::key_of(const Pool& pool, CUdevice device) {
  constexpr CUdevice kEveryDevice = -1;
  return {pool.id, pool.kind == device::MemoryKind::kHost ? kEveryDevice : device};
}

void RegionCache::forget_the_gone() {
  std::erase_if(regions_, [](const auto& entry) { return entry.second.expired(); });
}

void RegionCache::add(const Pool& pool, CUdevice device,
                      const std::shared_ptr<device::Region>& region) {
  const std::lock_guard lock(mutex_);
  forget_the_gone();
  regions_[key_of(pool, device)] = region;
}

Result<std::shared_ptr<device::Region>> RegionCache::map(const device::Driver& driver,
                                                         CUdevice device, const Pool& pool,
                                                         UniqueFd fd) {
  const std::lock_guard lock(mutex_);
  forget_the_gone();
  std::weak_ptr<device::Region>& known = regions_[key_of(pool, device)];
  if (auto region = known.lock()) return region;
  auto imported = device::Region::import(driver, device, pool.kind, std::move(fd), pool.bytes);
  if (!imported.ok()) return imported.status();
  std::shared_ptr<device::Region> region = imported.take();
  known = region;
  return region;
}

}  // namespace railyard::comm
