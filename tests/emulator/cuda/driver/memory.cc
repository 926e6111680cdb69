// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "context.h"
#include "device.h"
#include "resources.h"

namespace railyard::emulator {

bool MemoryMap::insert(Allocation allocation) {
  std::unique_lock lock(mutex_);
  auto it = ranges_.upper_bound(allocation.base);
  if (it != ranges_.begin() && std::prev(it)->second->end() > allocation.base) --it;
  while (it != ranges_.end() && it->second->base < allocation.end()) {
    bool stale =
        it->second->kind == MemoryKind::kRegistered && allocation.kind != MemoryKind::kRegistered;
    if (!stale) return false;
    it = ranges_.erase(it);
  }
  allocation.id = next_id_++;
  uintptr_t base = allocation.base;
  ranges_.emplace(base, std::make_shared<const Allocation>(allocation));
  return true;
}

MemoryMap::Map::const_iterator MemoryMap::containing(uintptr_t address) const {
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return ranges_.end();
  --it;
  return address < it->second->end() ? it : ranges_.end();
}

AllocationPtr MemoryMap::find(uintptr_t address) const {
  std::shared_lock lock(mutex_);
  auto it = containing(address);
  return it == ranges_.end() ? nullptr : it->second;
}

bool MemoryMap::covers(uintptr_t address, size_t bytes) const {
  std::shared_lock lock(mutex_);
  if (bytes > ~uintptr_t{0} - address) return false;
  uintptr_t end = address + bytes;
  for (auto it = containing(address); it != ranges_.end() && it->second->base <= address; ++it) {
    if (!it->second->accessible) return false;
    address = it->second->end();
    if (address >= end) return true;
  }
  return false;
}

AllocationPtr MemoryMap::take(uintptr_t base, std::initializer_list<MemoryKind> kinds) {
  std::unique_lock lock(mutex_);
  auto it = ranges_.find(base);
  if (it == ranges_.end() || it->second->freeing ||
      std::ranges::find(kinds, it->second->kind) == kinds.end()) {
    return nullptr;
  }
  AllocationPtr taken = it->second;
  ranges_.erase(it);
  return taken;
}

bool MemoryMap::begin_free(uintptr_t base) {
  std::unique_lock lock(mutex_);
  auto it = ranges_.find(base);
  if (it == ranges_.end() || it->second->freeing || it->second->kind != MemoryKind::kDevice) {
    return false;
  }
  Allocation changed = *it->second;
  changed.freeing = true;
  it->second = std::make_shared<const Allocation>(changed);
  return true;
}

AllocationPtr MemoryMap::finish_free(uintptr_t base) {
  std::unique_lock lock(mutex_);
  auto it = ranges_.find(base);
  if (it == ranges_.end() || !it->second->freeing) return nullptr;
  AllocationPtr taken = it->second;
  ranges_.erase(it);
  return taken;
}

std::vector<AllocationPtr> MemoryMap::take_all(const Context& context) {
  std::unique_lock lock(mutex_);
  std::vector<AllocationPtr> taken;
  for (auto it = ranges_.begin(); it != ranges_.end();) {
    if (it->second->context == &context) {
      taken.push_back(it->second);
      it = ranges_.erase(it);
    } else {
      ++it;
    }
  }
  return taken;
}

bool MemoryMap::tiles(uintptr_t base, size_t bytes) const {
  if (bytes == 0 || bytes > ~uintptr_t{0} - base) return false;
  uintptr_t at = base;
  for (auto it = ranges_.find(base); it != ranges_.end() && it->second->base == at; ++it) {
    if (it->second->kind != MemoryKind::kMapped) return false;
    at = it->second->end();
    if (at >= base + bytes) return at == base + bytes;
  }
  return false;
}

bool MemoryMap::take_mapped(uintptr_t base, size_t bytes) {
  std::unique_lock lock(mutex_);
  if (!tiles(base, bytes)) return false;
  ranges_.erase(ranges_.find(base), ranges_.lower_bound(base + bytes));
  return true;
}

bool MemoryMap::set_accessible(uintptr_t base, size_t bytes, bool accessible) {
  std::unique_lock lock(mutex_);
  if (!tiles(base, bytes)) return false;
  for (auto it = ranges_.find(base); it != ranges_.end() && it->first < base + bytes; ++it) {
    Allocation changed = *it->second;
    changed.accessible = accessible;
    it->second = std::make_shared<const Allocation>(changed);
  }
  return true;
}

size_t MemoryMap::used(int device) const {
  std::shared_lock lock(mutex_);
  size_t bytes = 0;
  for (const auto& [base, range] : ranges_) {
    if (range->on_device() && range->device == device) bytes += range->bytes;
  }
  return bytes;
}

MemoryMap& memory() {
  static auto* const kMemory = new MemoryMap;
  return *kMemory;
}

CUresult allocate(const Context& context, size_t bytes, MemoryKind kind, unsigned flags,
                  void** address) {
  constexpr size_t kAlignment = 512;
  constexpr size_t kPage = 4096;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  bool on_device = kind != MemoryKind::kHost;
  size_t limit = on_device ? kTotalMemory - std::min(kTotalMemory, memory().used(context.device()))
                           : kTotalMemory;
  if (bytes > limit) return CUDA_ERROR_OUT_OF_MEMORY;
  // Page-aligned host memory, as CUDA gives it out.
  size_t alignment = on_device ? kAlignment : kPage;
  void* pointer = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (pointer == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (on_device) std::memset(pointer, kPoison, std::min(bytes, kPoisonBytes));
  memory().insert(Allocation{address_of(pointer), bytes, kind, context.device(), &context, flags});
  *address = pointer;
  return CUDA_SUCCESS;
}

void release(const Allocation& allocation) {
  if (allocation.kind == MemoryKind::kRegistered || allocation.kind == MemoryKind::kMapped) return;
  std::free(reinterpret_cast<void*>(allocation.base));  // NOLINT: from allocate()
}

void release_memory(const Context& context) {
  for (const AllocationPtr& allocation : memory().take_all(context)) release(*allocation);
}

}  // namespace railyard::emulator
