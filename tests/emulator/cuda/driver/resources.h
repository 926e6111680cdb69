// SPDX-License-Identifier: Apache-2.0
//
// What belongs to a context besides its streams.
#pragma once

namespace railyard::emulator {

class Context;

void release_memory(const Context& context);
void release_events(const Context& context);
void release_modules(const Context& context);

inline void release_resources(const Context& context) {
  release_memory(context);
  release_events(context);
  release_modules(context);
}

}  // namespace railyard::emulator
