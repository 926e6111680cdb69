// SPDX-License-Identifier: Apache-2.0
//
// Communicators come and go: each call is NCCL's own, with railyard's part before or after it.
//
// Thread-bound, with the Group of the same thread.
#pragma once

#include <nccl.h>

#include "intercept/group.h"
#include "intercept/runtime.h"

namespace railyard::intercept {

class Life {
 public:
  Life(Runtime& runtime, Group& group) : runtime_(runtime), group_(group) {}

  ncclResult_t get_unique_id(ncclUniqueId* id);
  ncclResult_t init_rank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
  ncclResult_t init_rank_config(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                ncclConfig_t* config);
  ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config);

  ncclResult_t finalize(ncclComm_t comm);
  ncclResult_t destroy(ncclComm_t comm);
  ncclResult_t abort(ncclComm_t comm);
  ncclResult_t revoke(ncclComm_t comm, int flags);

  ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t* state);

 private:
  Creation join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank);

  Runtime& runtime_;
  Group& group_;
};

}  // namespace railyard::intercept
