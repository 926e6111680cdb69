// SPDX-License-Identifier: Apache-2.0
//
// What the exported functions that make communicators share: adding the work to the group. Each
// returns what its caller is to return.
#pragma once

#include <memory>
#include <vector>

#include "communicator.h"

namespace railyard::emulator {

ncclResult_t bad_communicator(const char* function);
ncclResult_t null_argument(const char* function, const char* name);

/// Adds the creation of one rank to the group.
ncclResult_t add_creation(ncclComm_t* newcomm, int ranks, const ncclUniqueId& id, int rank,
                          int device, bool blocking);
/// The same on the current device.
ncclResult_t create_rank(const char* function, ncclComm_t* newcomm, int ranks,
                         const ncclUniqueId& id, int rank, const ncclConfig_t* config);
/// Adds the making of a child to the group.
ncclResult_t add_child(const std::shared_ptr<Communicator>& parent, std::vector<int> members,
                       Communicator::Place place, const ncclConfig_t* config, ncclComm_t* newcomm);
/// A rank of `parent` goes on into a larger communicator; `id` is known to one of them at least.
ncclResult_t add_growth(const char* function, const std::shared_ptr<Communicator>& parent,
                        int ranks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm,
                        const ncclConfig_t* config);
std::vector<int> all_ranks(const Communicator& communicator);

}  // namespace railyard::emulator
