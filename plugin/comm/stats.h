// SPDX-License-Identifier: Apache-2.0
//
// RAILYARD_STATS: one line of JSON per communicator, appended when it ends.
#pragma once

#include <string>

#include "exchange/engine.h"

namespace railyard::comm {

struct Identity;

std::string statistics_line(const Identity& identity, const std::string& transport,
                            const exchange::Statistics& statistics);

/// Does nothing where no file is set. Whole lines, also of many processes writing to one file.
void write_statistics(const Identity& identity, const std::string& transport,
                      const exchange::Statistics& statistics);

}  // namespace railyard::comm
