// SPDX-License-Identifier: Apache-2.0
#include "loader/own.h"

#include <cstdint>

#include "base/loaded_object.h"

namespace railyard::loader {

bool is_own_code(const void* address) {
  struct Range {
    uintptr_t begin = 0, end = 0;
  };
  static const Range own = [] {
    Range range;
    for_each_loaded_object([&range](const LoadedObject& object) {
      if (!object.contains(reinterpret_cast<const void*>(&is_own_code))) return true;
      range = {object.begin(), object.end()};
      return false;
    });
    return range;
  }();
  const auto value = reinterpret_cast<uintptr_t>(address);
  return own.begin <= value && value < own.end;
}

}  // namespace railyard::loader
