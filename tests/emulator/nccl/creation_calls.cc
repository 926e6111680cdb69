// SPDX-License-Identifier: Apache-2.0
#include "creation_calls.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "config.h"
#include "device.h"
#include "group.h"
#include "result.h"

namespace railyard::emulator {

ncclResult_t bad_communicator(const char* function) {
  return fail(ncclInvalidArgument, "%s: the communicator is null or not a live one", function);
}

ncclResult_t null_argument(const char* function, const char* name) {
  return fail(ncclInvalidArgument, "%s: %s must not be null", function, name);
}

ncclResult_t add_creation(ncclComm_t* newcomm, int ranks, const ncclUniqueId& id, int rank,
                          int device, bool blocking) {
  auto communicator = std::make_shared<Communicator>();
  communicator->set_blocking(blocking);
  ncclResult_t result = communicator->set_device(device);
  if (result != ncclSuccess) return result;
  communicator->set_rank(rank, ranks);
  ncclComm_t handle = add_handle(communicator);
  *newcomm = handle;
  result = add_job(Job{communicator, [communicator, id] { return communicator->create(id); }});
  if (result == ncclSuccess) return result;
  remove_handle(handle);
  *newcomm = nullptr;
  return result;
}

ncclResult_t create_rank(const char* function, ncclComm_t* newcomm, int ranks,
                         const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  if (newcomm == nullptr) return null_argument(function, "newcomm");
  *newcomm = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return fail(ncclInvalidArgument, "%s: rank %d of %d", function, rank, ranks);
  }
  int device = 0;
  bool blocking = true;
  ncclResult_t result = read_config(config, &blocking);
  if (result == ncclSuccess) result = current_device(&device);
  if (result != ncclSuccess) return result;
  return add_creation(newcomm, ranks, id, rank, device, blocking);
}

ncclResult_t add_child(const std::shared_ptr<Communicator>& parent, std::vector<int> members,
                       Communicator::Place place, const ncclConfig_t* config, ncclComm_t* newcomm) {
  ncclResult_t result = parent->check_ready();
  if (result != ncclSuccess) return result;
  *newcomm = nullptr;
  place.blocking = parent->blocking();
  if (config != nullptr) {
    place.blocking = true;
    result = read_config(config, &place.blocking);
    if (result != ncclSuccess) return result;
  }
  auto run = [=, members = std::move(members)] {
    std::shared_ptr<Communicator> child;
    ncclResult_t made = Communicator::derive(*parent, members, place, &child);
    if (child) *newcomm = add_handle(std::move(child));
    return made;
  };
  return add_job(Job{parent, run});
}

std::vector<int> all_ranks(const Communicator& communicator) {
  std::vector<int> ranks(static_cast<size_t>(communicator.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

ncclResult_t add_growth(const char* function, const std::shared_ptr<Communicator>& parent,
                        int ranks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm,
                        const ncclConfig_t* config) {
  ncclResult_t result = parent->check_ready();
  if (result != ncclSuccess) return result;
  if (rank != -1) {
    return fail(ncclInvalidArgument, "%s: ranks of the communicator pass -1, not %d", function,
                rank);
  }
  bool blocking = true;
  if (config != nullptr) {
    result = read_config(config, &blocking);
  } else {
    blocking = parent->blocking();
  }
  auto grown = std::make_shared<Communicator>();
  grown->set_blocking(blocking);
  if (result == ncclSuccess) result = grown->set_device(parent->device());
  if (result != ncclSuccess) return result;
  grown->set_rank(parent->rank(), ranks);
  const bool known = id != nullptr;
  ncclUniqueId shared = known ? *id : ncclUniqueId{};
  *newcomm = add_handle(grown);
  return add_job(Job{grown, [=]() mutable {
                       ncclResult_t found = parent->share_id(known, &shared);
                       return found == ncclSuccess ? grown->create(shared) : found;
                     }});
}

}  // namespace railyard::emulator
