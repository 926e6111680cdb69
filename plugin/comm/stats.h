// SPDX-License-Identifier: Apache-2.0
//
// RAILYARD_STATS: one line of JSON per communicator and rank, appended when the communicator ends,
// or when it is decided that NCCL keeps it. Whole lines, also of many processes writing to one
// file.
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

/// {"rank": 0, "ranks": 8, "left": "why"}
std::string left_line(int rank, int ranks, const std::string& why);

/// Both do nothing where no file is set; `file` is a template.
void write_statistics(const Identity& identity, exchange::Gpu& gpu,
                      const exchange::Statistics& statistics);
void write_left(const std::string& file, int rank, int ranks, const std::string& why);

}  // namespace railyard::comm
