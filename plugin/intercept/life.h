// SPDX-License-Identifier: Apache-2.0
//
// Communicators come and go: each call is NCCL's own, with railyard's part before or after it.
// Config structs are passed on as they come; only what they say about blocking is looked at.
//
// Thread-bound, with the Group of the same thread.
#pragma once

#include <span>

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
  ncclResult_t init_rank_scalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                  ncclUniqueId* ids, ncclConfig_t* config);
  /// One process is one node, which is NCCL's.
  ncclResult_t init_all(ncclComm_t* comms, int devices, const int* list);
  ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config);
  ncclResult_t shrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* child,
                      ncclConfig_t* config, int flags);
  ncclResult_t comm_get_unique_id(ncclComm_t comm, ncclUniqueId* id);
  /// `comm` null: this is a new rank, and `id` tells where the others are.
  ncclResult_t grow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* grown,
                    ncclConfig_t* config);

  ncclResult_t finalize(ncclComm_t comm);
  ncclResult_t destroy(ncclComm_t comm);
  ncclResult_t abort(ncclComm_t comm);
  ncclResult_t revoke(ncclComm_t comm, int flags);
  ncclResult_t suspend(ncclComm_t comm, int flags);
  ncclResult_t resume(ncclComm_t comm);

  ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t* state);

 private:
  using Known = std::shared_ptr<comm::Communicator>;

  /// A new communicator from unique ids.
  Creation join(ncclComm_t* comm, std::span<const ncclUniqueId> ids, int ranks, int rank,
                const ncclConfig_t* config);
  /// A new communicator from another, which this makes known if it can; without its join.
  Creation descend(ncclComm_t parent, ncclComm_t* child, const ncclConfig_t* config);
  bool blocking(const ncclConfig_t* config, bool otherwise) const;
  /// Whether a call of before is still under way, at NCCL or here.
  bool under_way(ncclComm_t comm, const comm::Communicator& known);

  Runtime& runtime_;
  Group& group_;
};

}  // namespace railyard::intercept
