// SPDX-License-Identifier: Apache-2.0
//
// File names that many processes can share as one setting: each gets a file of its own.
#pragma once

#include <string>
#include <string_view>

namespace railyard {

struct FileTemplateValues {
  std::string host;  ///< %h
  int process = 0;   ///< %p
  int rank = -1;     ///< %r, left as it stands while -1
};

/// This host (up to the first dot) and process.
FileTemplateValues file_template_values();

/// Replaces %h, %p, %r and %% (one percent sign); anything else stays as it is.
std::string expand_file_template(std::string_view pattern, const FileTemplateValues& values);

}  // namespace railyard
