// SPDX-License-Identifier: Apache-2.0
//
// Railyard comes into a process: once, whichever of its ways in are used together.
#pragma once

namespace railyard::loader {

/// Installs the interception. Does nothing if it is there already, or if another file with railyard
/// has been loaded before. Thread-safe.
void start();

/// NCCL, whose code is at `nccl`, has loaded railyard as a plugin. Warns once if that NCCL is part
/// of a program or library whose calls into it cannot be seen.
void start_from(const void* nccl);

}  // namespace railyard::loader
