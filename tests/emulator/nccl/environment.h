// SPDX-License-Identifier: Apache-2.0
//
// NCCL's variables. From 2.28.7 on they are asked of an environment plugin, if there is one
// (NCCL_ENV_PLUGIN); it is loaded by the first question, at the latest when a unique id or a
// communicator is made. Before that, files with settings are read (NCCL_CONF_FILE or
// ~/.nccl.conf, then /etc/nccl.conf). Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace railyard::emulator {

/// Null: not set.
const char* variable(const char* name);
/// A number, as all settings of NCCL: decimal, 0x… or octal; nullopt: not set, or empty.
std::optional<long long> number_variable(const char* name);
/// The text of variable(), but does not load the plugin: for messages that may come before it or
/// from it.
const char* variable_so_far(const char* name);
/// Whether a value says "none".
bool switched_off(const char* value);

/// Opens a plugin by NCCL's rules: `value` as it is, then lib<prefix>-<value>.so; without a value
/// lib<prefix>.so; "none" names none. `static_allowed`: STATIC_PLUGIN, or a beginning of it, names
/// the program itself and what is preloaded. Null: there is none.
void* open_plugin(const std::string& prefix, const char* value, bool static_allowed);

}  // namespace railyard::emulator
