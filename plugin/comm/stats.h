// SPDX-License-Identifier: Apache-2.0
//
// RAILYARD_STATS: one line of JSON per communicator, appended when it ends.
#pragma once

#include <string>

#include "exchange/engine.h"
#include "exchange/gpu.h"
#include "transport/transport.h"

namespace railyard::comm {

struct Identity;

/// `counters` are the transport's, which serves all communicators of a GPU.
std::string statistics_line(const Identity& identity, const std::string& transport,
                            const exchange::Statistics& statistics,
                            const transport::Counters& counters);

/// Does nothing where no file is set. Whole lines, also of many processes writing to one file.
void write_statistics(const Identity& identity, exchange::Gpu& gpu,
                      const exchange::Statistics& statistics);

}  // namespace railyard::comm
