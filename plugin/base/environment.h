// SPDX-License-Identifier: Apache-2.0
//
// Environment variables as a value, so that whoever reads them can be given others in tests.
#pragma once

#include <map>
#include <string>

namespace railyard {

using Environment = std::map<std::string, std::string>;

/// A copy of the process's environment.
Environment process_environment();

}  // namespace railyard
