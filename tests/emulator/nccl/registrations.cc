// SPDX-License-Identifier: Apache-2.0
#include "registrations.h"

#include <algorithm>

namespace railyard::emulator {

std::list<Registrations::Entry>::iterator Registrations::locate(const void* handle) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return &entry == handle; });
}

void* Registrations::add(void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.memory == memory && entry.bytes == bytes;
  });
  if (found == entries_.end()) found = entries_.insert(found, Entry{memory, bytes, 0});
  ++found->uses;
  return &*found;
}

bool Registrations::remove(const void* handle) {
  std::lock_guard lock(mutex_);
  auto found = locate(handle);
  if (found == entries_.end()) return false;
  if (--found->uses == 0) entries_.erase(found);
  return true;
}

bool Registrations::find(const void* handle, void** memory) {
  std::lock_guard lock(mutex_);
  auto found = locate(handle);
  if (found == entries_.end()) return false;
  *memory = found->memory;
  return true;
}

}  // namespace railyard::emulator
