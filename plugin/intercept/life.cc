// SPDX-License-Identifier: Apache-2.0
#include "intercept/life.h"

#include <utility>

namespace railyard::intercept {

ncclResult_t Life::get_unique_id(ncclUniqueId* id) {
  const ncclResult_t result = forward(runtime_.nccl.ncclGetUniqueId, id);
  if (result == ncclSuccess) runtime_.manager.mark(id);
  return result;
}

Creation Life::join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank) {
  Creation creation;
  creation.target = comm;
  if (comm != nullptr && rank >= 0 && rank < ranks) {
    creation.joining = runtime_.manager.join(std::span(&id, 1), ranks, rank);
  }
  return creation;
}

ncclResult_t Life::init_rank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  Creation creation = join(comm, ranks, id, rank);
  const ncclResult_t result = forward(runtime_.nccl.ncclCommInitRank, comm, ranks, id, rank);
  group_.add(std::move(creation), result);
  return result;
}

ncclResult_t Life::init_rank_config(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  Creation creation = join(comm, ranks, id, rank);
  const ncclResult_t result =
      forward(runtime_.nccl.ncclCommInitRankConfig, comm, ranks, id, rank, config);
  group_.add(std::move(creation), result);
  return result;
}

ncclResult_t Life::split(ncclComm_t comm, int color, int key, ncclComm_t* child,
                         ncclConfig_t* config) {
  Creation creation;
  creation.target = child;
  creation.parent = comm;
  if (comm != nullptr && child != nullptr) {
    creation.joining = runtime_.manager.join_split(comm, color, key);
  }
  const ncclResult_t result = forward(runtime_.nccl.ncclCommSplit, comm, color, key, child, config);
  group_.add(std::move(creation), result);
  return result;
}

ncclResult_t Life::finalize(ncclComm_t comm) {
  ncclResult_t said = ncclSuccess;
  if (auto communicator = runtime_.manager.find(comm)) {
    said = group_.add(Group::Farewell{comm, std::move(communicator), false});
  }
  const ncclResult_t result = group_.note(forward(runtime_.nccl.ncclCommFinalize, comm));
  return result == ncclSuccess ? said : result;
}

ncclResult_t Life::destroy(ncclComm_t comm) {
  runtime_.outstanding.forget(comm);
  if (auto communicator = runtime_.manager.find(comm)) {
    group_.add(Group::Farewell{comm, std::move(communicator), true});
  }
  return group_.note(forward(runtime_.nccl.ncclCommDestroy, comm));
}

ncclResult_t Life::abort(ncclComm_t comm) {
  runtime_.outstanding.forget(comm);
  // Kernels leave first: what NCCL waits for may be queued behind them.
  const auto communicator = runtime_.manager.unbind(comm);
  if (communicator != nullptr) communicator->stop();
  return group_.note(forward(runtime_.nccl.ncclCommAbort, comm));
}

ncclResult_t Life::revoke(ncclComm_t comm, int flags) {
  const ncclResult_t result = group_.note(forward(runtime_.nccl.ncclCommRevoke, comm, flags));
  if (result != ncclSuccess && result != ncclInProgress) return result;
  // From here on NCCL refuses messages itself; they must find their way there.
  if (const auto communicator = runtime_.manager.unbind(comm)) communicator->stop();
  return result;
}

ncclResult_t Life::get_async_error(ncclComm_t comm, ncclResult_t* state) {
  const ncclResult_t result = forward(runtime_.nccl.ncclCommGetAsyncError, comm, state);
  if (result != ncclSuccess) return result;
  *state = runtime_.outstanding.advance(runtime_, comm, *state);
  if (*state != ncclSuccess) return result;
  const auto communicator = runtime_.manager.find(comm);
  if (communicator == nullptr || communicator->engine() == nullptr) return result;
  const Status status = runtime_.engines.error(*communicator->engine());
  *state = runtime_.last_error.set(status);
  return result;
}

}  // namespace railyard::intercept
