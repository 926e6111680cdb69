// SPDX-License-Identifier: Apache-2.0
//
// What an operation needs in the memory of one rank, and what must be there afterwards, computed
// from the program alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "program.h"

namespace programs {

using Bytes = std::vector<std::byte>;

/// Contents of the send buffer; empty where the rank sends nothing. `members`: of the operation's
/// communicator; `rank`: one of it.
Bytes sent(uint64_t seed, const Operation& operation, const std::vector<int>& members, int rank);
/// Contents of the receive buffer when all is done; empty where the rank receives nothing.
Bytes received(uint64_t seed, const Operation& operation, const std::vector<int>& members,
               int rank);
/// Whether the rank calls NCCL for it at all.
bool takes_part(const Operation& operation, int rank);

/// Bytes that the rank sends to others in messages, by rank of the receiver.
std::vector<uint64_t> message_bytes(const Operation& operation, size_t ranks, int rank);

size_t size_of(ncclDataType_t type);

}  // namespace programs
