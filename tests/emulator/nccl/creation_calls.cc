// SPDX-License-Identifier: Apache-2.0
#include "creation_calls.h"

#include <stddef.h>
#include <string.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "device.h"
#include "environment.h"
#include "group.h"
#include "result.h"

namespace railyard::emulator {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

/// What is read of a caller's config, which may be shorter or longer than ours. `blocking` keeps
/// its value where the config says nothing.
ncclResult_t read_config(const ncclConfig_t* config, bool* blocking) {
  if (config == nullptr) return ncclSuccess;
  ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
  size_t size = 0;
  ::memcpy(&size, config, sizeof size);
  if (size < offsetof(ncclConfig_t, version)) {
    return fail(ncclInvalidArgument, "config has a size of %zu bytes, too few for any", size);
  }
  ::memcpy(&known, config, std::min(size, sizeof known));
  if (known.magic != kConfigMagic) {
    return fail(ncclInvalidArgument, "config was not begun with NCCL_CONFIG_INITIALIZER");
  }
  if (known.version < NCCL_VERSION(2, 14, 0) || known.blocking == NCCL_CONFIG_UNDEF_INT) {
    return ncclSuccess;
  }
  if (known.blocking != 0 && known.blocking != 1) {
    return fail(ncclInvalidArgument, "config.blocking must be 0 or 1, not %d", known.blocking);
  }
  *blocking = known.blocking == 1;
  return ncclSuccess;
}

/// NCCL_COMM_BLOCKING rules over what a config says.
bool settled_blocking(bool wanted) {
  const char* text = variable("NCCL_COMM_BLOCKING");
  if (text == nullptr || (*text != '0' && *text != '1')) return wanted;
  return *text == '1';
}

}  // namespace

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
  add_job(Job{communicator, [communicator, id] { return communicator->create(id); },
              [newcomm, handle] {
                remove_handle(handle);
                *newcomm = nullptr;
              }});
  return ncclSuccess;
}

ncclResult_t create_rank(const char* function, ncclComm_t* newcomm, int ranks,
                         const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  ncclResult_t result = grouped([&]() -> ncclResult_t {
    if (newcomm == nullptr) return null_argument(function, "newcomm");
    *newcomm = nullptr;
    if (ranks < 1 || rank < 0 || rank >= ranks) {
      return fail(ncclInvalidArgument, "%s: rank %d of %d", function, rank, ranks);
    }
    int device = 0;
    bool blocking = true;
    ncclResult_t checked = read_config(config, &blocking);
    if (checked == ncclSuccess) checked = current_device(&device);
    if (checked != ncclSuccess) return checked;
    return add_creation(newcomm, ranks, id, rank, device, settled_blocking(blocking));
  });
  if (result != ncclSuccess && result != ncclInProgress && !in_group() && newcomm != nullptr) {
    remove_handle(*newcomm);
    *newcomm = nullptr;
  }
  return result;
}

ncclResult_t add_child(const std::shared_ptr<Communicator>& parent, std::vector<int> members,
                       Communicator::Place place, const ncclConfig_t* config, int flags,
                       ncclComm_t* newcomm) {
  *newcomm = nullptr;
  place.blocking = parent->blocking();
  ncclResult_t result = read_config(config, &place.blocking);
  if (config != nullptr) place.blocking = settled_blocking(place.blocking);
  if (result == ncclSuccess) result = parent->check_ready();
  if (result != ncclSuccess) return result;
  auto run = [=, members = std::move(members)] {
    if ((flags & NCCL_SHRINK_ABORT) != 0) parent->interrupt();
    std::shared_ptr<Communicator> child;
    ncclResult_t made = Communicator::derive(*parent, members, place, &child);
    if (child) *newcomm = add_handle(std::move(child));
    return made;
  };
  add_job(Job{parent, run, [] {}});
  return ncclSuccess;
}

std::vector<int> all_ranks(const Communicator& communicator) {
  std::vector<int> ranks(static_cast<size_t>(communicator.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

ncclResult_t grow_from(const char* function, ncclComm_t comm, int ranks, const ncclUniqueId* id,
                       int rank, ncclComm_t* newcomm, const ncclConfig_t* config) {
  return grouped([&]() -> ncclResult_t {
    std::shared_ptr<Communicator> parent = find_handle(comm);
    if (!parent) return bad_communicator(function);
    if (rank != -1 || ranks <= parent->ranks()) {
      return fail(ncclInvalidArgument, "%s: rank %d of %d grows to rank %d of %d", function,
                  parent->rank(), parent->ranks(), rank, ranks);
    }
    *newcomm = nullptr;
    bool blocking = parent->blocking();
    ncclResult_t result = read_config(config, &blocking);
    if (result == ncclSuccess) result = parent->check_ready();
    if (result != ncclSuccess) return result;
    auto grown = std::make_shared<Communicator>();
    grown->set_blocking(blocking);
    result = grown->set_device(parent->device());
    if (result != ncclSuccess) return result;
    grown->set_rank(parent->rank(), ranks);
    ncclUniqueId own{};
    if (id != nullptr) own = *id;
    ncclComm_t handle = add_handle(grown);
    *newcomm = handle;
    auto run = [=] {
      ncclUniqueId known = own;
      ncclResult_t shared = parent->share_id(id != nullptr, &known);
      return shared == ncclSuccess ? grown->create(known) : shared;
    };
    add_job(Job{grown, run, [newcomm, handle] {
                  remove_handle(handle);
                  *newcomm = nullptr;
                }});
    return ncclSuccess;
  });
}

}  // namespace railyard::emulator
