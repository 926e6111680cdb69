// SPDX-License-Identifier: Apache-2.0
// How the ranks of a job meet: rank 0 hands NCCL's unique id to the others over TCP.
//
// A client sends a mark, its number of ranks and its rank; the server answers with a verdict and
// the id. Connections that send anything else are dropped.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <nccl.h>

#include "launch_environment.h"

namespace moe {

// The id of rank 0, which makes one and hands it to the others.
ncclUniqueId meet(const LaunchEnvironment& launch, std::chrono::seconds timeout);

// Serves `id` until every other rank has fetched it.
void serve_id(const ncclUniqueId& id, std::uint16_t port, int ranks, std::chrono::seconds timeout);

// Fetches the id, trying again until the server is up.
ncclUniqueId fetch_id(const std::string& address, std::uint16_t port, int rank, int ranks,
                      std::chrono::seconds timeout);

}  // namespace moe
