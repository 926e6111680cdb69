// SPDX-License-Identifier: Apache-2.0
//
// NCCL's own variables as NCCL sees them: the environment first, then the file NCCL_CONF_FILE names
// (else .nccl.conf in the home directory of the user database, not $HOME), then /etc/nccl.conf.
// NCCL reads those files only at its first call; railyard may run before it.
//
// Immutable after load(), so thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/environment.h"

namespace railyard {

class NcclEnv {
 public:
  /// Files that cannot be read are skipped, as NCCL does.
  static NcclEnv load(const Environment& environment);
  /// The same with the files to read given, first wins. For tests.
  static NcclEnv load(const Environment& environment, std::initializer_list<std::string> files);

  /// Empty where unset: NCCL does not tell these apart either.
  std::string text(const std::string& name) const;
  /// Null where unset; valid as long as this is.
  const char* find(const std::string& name) const;
  /// As NCCL reads numbers: decimal, 0x… or octal, what follows is ignored; `otherwise` if unset or
  /// out of range. Text that is no number yields 0.
  int64_t number(const std::string& name, int64_t otherwise) const;

 private:
  /// Adds the lines "NAME=value" of a file whose names are not there yet.
  void add_file(std::string_view content);

  Environment values_;
};

}  // namespace railyard
