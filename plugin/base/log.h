// SPDX-License-Identifier: Apache-2.0
//
// Lines for people, on stderr or in RAILYARD_DEBUG_FILE; never on stdout. Every line begins
// "railyard" and is written with one system call, so lines of several ranks do not mix.
//
// Thread-safe. A line below the current level costs one relaxed load.
#pragma once

#include <cstdint>

namespace railyard::log {

/// Levels by volume: an error or a refusal, one line per process or communicator, per step.
enum class Level : uint8_t { kOff, kWarn, kInfo, kTrace };

/// `file` is a path with %h (host), %p (process) and %% expanded by the caller, or empty for
/// stderr. Called once, before other threads of railyard exist; until then the level is kWarn.
void configure(Level level, const char* file);
bool enabled(Level level);

[[gnu::format(printf, 1, 2)]] void warn(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void info(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void trace(const char* format, ...);

}  // namespace railyard::log
