// SPDX-License-Identifier: Apache-2.0
#include "loader/imports.h"

#include <dlfcn.h>

#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/loaded_object.h"
#include "intercept/nccl_library.h"
#include "intercept/wrappers.h"
#include "loader/hooks.h"
#include "loader/own.h"

namespace railyard::loader {
namespace {

using intercept::Function;
using intercept::NcclLibrary;

/// An object by where it lies and what it is called.
using Key = std::pair<uintptr_t, std::string>;

Key key_of(const LoadedObject& object) { return {object.begin(), object.path()}; }

/// An object that has been done.
struct Done {
  size_t copies = 0;            ///< of NCCL that were known then
  LoadedObject::Write proof{};  ///< one of our writes; gone if this is another object by now
};

/// Only touched within for_each_loaded_object().
std::map<Key, Done>& done_objects() {
  static auto* const objects = new std::map<Key, Done>;
  return *objects;
}

bool is_done(const LoadedObject& object) {
  const auto found = done_objects().find(key_of(object));
  if (found == done_objects().end()) return false;
  const Done& done = found->second;
  if (done.copies != NcclLibrary::copies()) return false;
  return done.proof.slot == nullptr || *done.proof.slot == done.proof.value;
}

bool is_nccl(const LoadedObject& object) {
  for (size_t i = 0; i < NcclLibrary::copies(); ++i) {
    if (NcclLibrary::copy(i).contains(reinterpret_cast<const void*>(object.begin()))) return true;
  }
  return false;
}

/// What a slot of a handled function should hold; what it holds, if it is to stay.
uintptr_t replacement(const LoadedObject& object, const Import& import, Function function,
                      const NcclLibrary* reached) {
  const uintptr_t now = *import.slot;
  const auto* const target = reinterpret_cast<const void*>(now);
  const bool ours = is_own_code(target) && !intercept::is_wrapper(target);
  const bool unresolved = import.call && object.contains(target);
  const NcclLibrary* copy = NcclLibrary::defining(target);
  if (copy == nullptr && (ours || unresolved)) copy = reached;
  if (copy == nullptr) return ours && import.weak && !import.call ? 0 : now;
  if (copy->exported[static_cast<size_t>(function)] == nullptr) {
    return ours && import.weak && !import.call ? 0 : now;
  }
  return reinterpret_cast<uintptr_t>(intercept::wrapper(function, copy->index));
}

uintptr_t replacement(const LoadedObject& object, const Import& import,
                      const NcclLibrary* reached) {
  const uintptr_t now = *import.slot;
  if (const Hook* const hook = hook_named(import.name)) {
    const auto* const target = reinterpret_cast<const void*>(now);
    const bool unresolved = import.call && object.contains(target);
    return unresolved || target == hook->real ? reinterpret_cast<uintptr_t>(hook->ours) : now;
  }
  const auto function = intercept::function_named(import.name);
  return function ? replacement(object, import, *function, reached) : now;
}

/// The wrapper for what NCCL exports at this address; null if it exports nothing there.
const void* wrapper_of(const void* address) {
  const NcclLibrary* const copy = NcclLibrary::defining(address);
  if (copy == nullptr) return nullptr;
  for (size_t i = 0; i < intercept::kFunctions; ++i) {
    if (copy->exported[i] == address) {
      return intercept::wrapper(static_cast<Function>(i), copy->index);
    }
  }
  return nullptr;
}

/// Other threads may be using the variables: only what is surely an address of NCCL's is touched.
void replace_variables(const LoadedObject& object) {
  object.for_each_variable([](uintptr_t* variable, uintptr_t value) {
    const void* const ours = wrapper_of(reinterpret_cast<const void*>(value));
    if (ours == nullptr) return;
    std::atomic_ref<uintptr_t>(*variable).compare_exchange_strong(
        value, reinterpret_cast<uintptr_t>(ours));
  });
}

void patch(const LoadedObject& object, const NcclLibrary* reached) {
  std::vector<LoadedObject::Write> writes;
  object.for_each_import([&](const Import& import) {
    const uintptr_t value = replacement(object, import, reached);
    if (value != *import.slot) writes.push_back({import.slot, value});
  });
  Done& done = done_objects()[key_of(object)];
  done.copies = NcclLibrary::copies();
  if (writes.empty()) return;
  if (object.write(writes)) done.proof = writes.front();
}

/// Objects not done yet, and an address in each.
std::map<Key, const void*> new_objects() {
  std::map<Key, const void*> found;
  for_each_loaded_object([&found](const LoadedObject& object) {
    const auto* const inside = reinterpret_cast<const void*>(object.begin());
    if (!is_own_code(inside) && !is_nccl(object) && !is_done(object)) {
      found.emplace(key_of(object), inside);
    }
    return true;
  });
  return found;
}

}  // namespace

void refresh_imports() {
  static std::atomic<uint64_t> seen{UINT64_MAX};
  const uint64_t generation = loaded_objects_generation();
  if (seen.load(std::memory_order_acquire) == generation) return;
  NcclLibrary::refresh();
  // When it was preloaded, all look-ups have come by it.
  const bool late = seen.load() == UINT64_MAX && !intercept::in_global_scope();
  const std::map<Key, const void*> found = new_objects();
  // Another thread may be loading some of these: they are listed, but the loader still has to write
  // their slots. It holds a lock meanwhile, which this waits for.
  Dl_info unused;
  dladdr(reinterpret_cast<const void*>(&refresh_imports), &unused);
  std::map<Key, const NcclLibrary*> reached;
  for (const auto& [key, inside] : found) {
    reached.emplace(key, NcclLibrary::copies() == 0 ? nullptr : NcclLibrary::find_from(inside));
  }
  for_each_loaded_object([&reached, late](const LoadedObject& object) {
    const auto entry = reached.find(key_of(object));
    if (entry == reached.end() || is_done(object)) return true;
    patch(object, entry->second);
    if (late) replace_variables(object);
    return true;
  });
  seen.store(generation, std::memory_order_release);
}

}  // namespace railyard::loader
