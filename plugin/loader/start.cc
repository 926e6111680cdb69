// SPDX-License-Identifier: Apache-2.0
#include "loader/start.h"

#include <atomic>

#include "base/loaded_object.h"
#include "base/log.h"
#include "intercept/nccl_library.h"
#include "loader/imports.h"
#include "loader/own.h"

namespace railyard::loader {
namespace {

/// Of several files with railyard the one that was loaded first acts.
bool is_first() {
  bool first = true;
  for_each_loaded_object([&first](const LoadedObject& object) {
    if (object.find(intercept::kOwnName) == nullptr) return true;
    first = is_own_code(reinterpret_cast<const void*>(object.begin()));
    return false;
  });
  return first;
}

bool acts() {
  static const bool first = is_first();
  return first;
}

}  // namespace

void start() {
  if (acts()) refresh_imports();
}

void start_from(const void* nccl) {
  if (!acts()) return;
  refresh_imports();
  for (size_t i = 0; i < intercept::NcclLibrary::copies(); ++i) {
    if (intercept::NcclLibrary::copy(i).shares_object_with(nccl)) return;
  }
  static std::atomic<bool> complained{false};
  if (complained.exchange(true)) return;
  log::warn(
      "NCCL is linked statically into the program or one of its libraries: its calls cannot "
      "be intercepted and stay with NCCL");
}

}  // namespace railyard::loader
