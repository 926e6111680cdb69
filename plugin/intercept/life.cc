// SPDX-License-Identifier: Apache-2.0
#include "intercept/life.h"

#include <utility>

#include "intercept/blocking.h"

namespace railyard::intercept {
namespace {

constexpr int kShrinkAbort = 1;  ///< NCCL_SHRINK_ABORT, which headers of older releases lack
constexpr int kRankOfParent = -1;

bool accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

}  // namespace

bool Life::blocking(const ncclConfig_t* config, bool otherwise) const {
  return runtime_.always_blocking.value_or(blocking_by_config(config, otherwise));
}

ncclResult_t Life::get_unique_id(ncclUniqueId* id) {
  const ncclResult_t result = forward(runtime_.nccl.ncclGetUniqueId, id);
  if (result == ncclSuccess) runtime_.manager.mark(id);
  return result;
}

Creation Life::join(ncclComm_t* comm, std::span<const ncclUniqueId> ids, int ranks, int rank,
                    const ncclConfig_t* config) {
  Creation creation;
  creation.target = comm;
  creation.blocking = creation.may_wait = blocking(config, true);
  // The id stays good if NCCL refuses the call at once, so nobody may come to the meeting for it.
  if (comm != nullptr && rank >= 0 && rank < ranks && !refused_config(config)) {
    creation.joining = runtime_.manager.join(ids, ranks, rank);
  }
  // Ids without a mark were made before railyard came, so other ranks may not have seen this
  // creation: there it is a stranger, and must be one here too.
  if (creation.joining != nullptr) runtime_.strangers.close();
  return creation;
}

ncclResult_t Life::init_rank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  Creation creation = join(comm, {&id, 1}, ranks, rank, nullptr);
  return group_.add(std::move(creation),
                    forward(runtime_.nccl.ncclCommInitRank, comm, ranks, id, rank));
}

ncclResult_t Life::init_rank_config(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  Creation creation = join(comm, {&id, 1}, ranks, rank, config);
  return group_.add(std::move(creation),
                    forward(runtime_.nccl.ncclCommInitRankConfig, comm, ranks, id, rank, config));
}

ncclResult_t Life::init_rank_scalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                      ncclUniqueId* ids, ncclConfig_t* config) {
  std::span<const ncclUniqueId> all;
  if (ids != nullptr && id_count > 0) all = {ids, static_cast<size_t>(id_count)};
  Creation creation = all.empty() ? Creation{} : join(comm, all, ranks, rank, config);
  return group_.add(std::move(creation), forward(runtime_.nccl.ncclCommInitRankScalable, comm,
                                                 ranks, rank, id_count, ids, config));
}

ncclResult_t Life::init_all(ncclComm_t* comms, int devices, const int* list) {
  runtime_.strangers.close();
  return group_.note(forward(runtime_.nccl.ncclCommInitAll, comms, devices, list));
}

Creation Life::descend(ncclComm_t parent, ncclComm_t* child, const ncclConfig_t* config) {
  runtime_.strangers.adopt(runtime_, parent);
  runtime_.strangers.close();
  Creation creation;
  creation.target = child;
  creation.parent = parent;
  const Known known = runtime_.manager.find(parent);
  creation.may_wait = known == nullptr || known->standing.blocking;  // not the child's
  creation.blocking = blocking(config, creation.may_wait);
  return creation;
}

ncclResult_t Life::split(ncclComm_t comm, int color, int key, ncclComm_t* child,
                         ncclConfig_t* config) {
  if (group_.busy(comm)) return group_.refuse_busy();
  Creation creation = descend(comm, child, config);
  if (comm != nullptr && child != nullptr && !refused_config(config)) {
    creation.joining = runtime_.manager.join_split(comm, color, key);
  }
  return group_.add(std::move(creation),
                    forward(runtime_.nccl.ncclCommSplit, comm, color, key, child, config));
}

ncclResult_t Life::shrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* child,
                          ncclConfig_t* config, int flags) {
  if (group_.busy(comm)) return group_.refuse_busy();
  Creation creation = descend(comm, child, config);
  if (comm != nullptr && child != nullptr && excluded != nullptr && excluded_count > 0 &&
      runtime_.nccl.ncclCommShrink != nullptr) {
    creation.joining =
        runtime_.manager.join_shrink(comm, {excluded, static_cast<size_t>(excluded_count)});
    // NCCL ends its kernels and waits for them; ours may stand in front of them.
    const Known parent = runtime_.manager.find(comm);
    if (parent != nullptr && (flags & kShrinkAbort) != 0) parent->stop();
  }
  return group_.add(std::move(creation), forward(runtime_.nccl.ncclCommShrink, comm, excluded,
                                                 excluded_count, child, config, flags));
}

ncclResult_t Life::comm_get_unique_id(ncclComm_t comm, ncclUniqueId* id) {
  if (group_.busy(comm)) return group_.refuse_busy();
  const ncclResult_t result = forward(runtime_.nccl.ncclCommGetUniqueId, comm, id);
  if (result != ncclSuccess) return result;
  runtime_.strangers.adopt(runtime_, comm);
  runtime_.manager.mark_growth(comm, id);
  return result;
}

ncclResult_t Life::grow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank,
                        ncclComm_t* grown, ncclConfig_t* config) {
  if (group_.busy(comm)) return group_.refuse_busy();
  Creation creation;
  if (runtime_.nccl.ncclCommGrow == nullptr || grown == nullptr) {
    // NCCL is going to refuse it.
  } else if (comm != nullptr) {
    creation = descend(comm, grown, config);
    creation.parent = nullptr;  // the call is the new one's
    creation.may_wait = creation.blocking;
    if (rank == kRankOfParent) creation.joining = runtime_.manager.join_grow(comm, ranks);
  } else if (id != nullptr) {
    creation = join(grown, {id, 1}, ranks, rank, config);
  }
  return group_.add(std::move(creation),
                    forward(runtime_.nccl.ncclCommGrow, comm, ranks, id, rank, grown, config));
}

bool Life::under_way(ncclComm_t comm, const comm::Communicator& known) {
  if (group_.busy(comm) || known.standing.leaving) return true;
  if (known.standing.blocking) return false;
  ncclResult_t state = ncclSuccess;
  forward(runtime_.nccl.ncclCommGetAsyncError, comm, &state);
  return state == ncclInProgress;
}

ncclResult_t Life::finalize(ncclComm_t comm) {
  if (group_.busy(comm)) return group_.refuse_busy();
  const Known known = runtime_.manager.find(comm);
  ncclResult_t said = ncclSuccess;
  if (known != nullptr && !known->standing.revoked && !known->standing.finalized) {
    if (under_way(comm, *known)) return group_.refuse_busy();
    known->standing.finalized = true;
    said = group_.add(Farewell{comm, known, false});
  }
  const ncclResult_t result = group_.note(forward(runtime_.nccl.ncclCommFinalize, comm));
  if (result != ncclSuccess) return result;
  return said == ncclSuccess && known != nullptr && known->standing.leaving ? ncclInProgress : said;
}

ncclResult_t Life::destroy(ncclComm_t comm) {
  if (group_.busy(comm)) return group_.refuse_busy();
  const Known known = runtime_.manager.find(comm);
  if (known == nullptr) {
    runtime_.strangers.forget(runtime_, comm);
  } else if (under_way(comm, *known)) {
    return group_.refuse_busy();
  } else if (known->standing.revoked) {
    runtime_.manager.unbind(comm);  // who has stopped waits for nobody
  } else {
    group_.add(Farewell{comm, known, true});
  }
  return group_.note(forward(runtime_.nccl.ncclCommDestroy, comm));
}

ncclResult_t Life::abort(ncclComm_t comm) {
  runtime_.outstanding.forget(comm);
  // Kernels leave first: what NCCL waits for may be queued behind them.
  const Known known = runtime_.manager.unbind(comm);
  if (known != nullptr) {
    known->stop();
  } else {
    runtime_.strangers.forget(runtime_, comm);
  }
  return group_.note(forward(runtime_.nccl.ncclCommAbort, comm));
}

ncclResult_t Life::revoke(ncclComm_t comm, int flags) {
  const Known known = runtime_.manager.find(comm);
  const bool allowed = known != nullptr && runtime_.nccl.ncclCommRevoke != nullptr && flags == 0 &&
                       !known->standing.revoked && !known->standing.finalized;
  // As for abort. It stays known: it can have children yet.
  if (allowed) known->stop();
  const ncclResult_t result = group_.note(forward(runtime_.nccl.ncclCommRevoke, comm, flags));
  if (allowed && accepted(result)) known->standing.revoked = true;
  return result;
}

ncclResult_t Life::suspend(ncclComm_t comm, int flags) {
  if (group_.busy(comm)) return group_.refuse_busy();
  const ncclResult_t result = group_.note(forward(runtime_.nccl.ncclCommSuspend, comm, flags));
  const Known known = runtime_.manager.find(comm);
  if (known != nullptr && accepted(result)) known->standing.suspended = true;
  return result;
}

ncclResult_t Life::resume(ncclComm_t comm) {
  const ncclResult_t result = group_.note(forward(runtime_.nccl.ncclCommResume, comm));
  const Known known = runtime_.manager.find(comm);
  if (known != nullptr && accepted(result)) known->standing.suspended = false;
  return result;
}

ncclResult_t Life::get_async_error(ncclComm_t comm, ncclResult_t* state) {
  const ncclResult_t result = forward(runtime_.nccl.ncclCommGetAsyncError, comm, state);
  if (result != ncclSuccess) return result;
  *state = runtime_.outstanding.advance(runtime_, comm, *state);
  if (*state != ncclSuccess) return result;
  const Known known = runtime_.manager.find(comm);
  if (known == nullptr || known->standing.revoked) return result;
  if (known->standing.leaving) {
    *state = ncclInProgress;
  } else if (known->engine() != nullptr) {
    *state = runtime_.last_error.set(runtime_.engines.error(*known->engine()));
  }
  return result;
}

}  // namespace railyard::intercept
