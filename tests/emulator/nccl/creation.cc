// SPDX-License-Identifier: Apache-2.0
//
// How communicators come into being: from a unique id, or by splitting another.
#include <string.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "communicator.h"
#include "exchange.h"
#include "result.h"
#include "version.h"

namespace railyard::emulator {

uint64_t Communicator::hash() const {
  const Key& key = fabric_.table().front().key;
  return key.words[0] ^ key.words[1];
}

ncclResult_t Communicator::check_table(const std::vector<Record>& table) const {
  for (size_t a = 0; a < table.size(); ++a) {
    if (table[a].version != nccl_version()) {
      return fail(ncclInvalidUsage, "rank %zu runs NCCL %d, this one %d; all must run the same", a,
                  table[a].version, nccl_version());
    }
    for (size_t b = a + 1; b < table.size(); ++b) {
      if (table[a].host != table[b].host || ::strcmp(table[a].bus_id, table[b].bus_id) != 0)
        continue;
      return fail(ncclInvalidUsage,
                  "Duplicate GPU detected: rank %zu and rank %zu are both on CUDA device %s; give "
                  "each process another device, or another NCCL_HOSTID",
                  a, b, table[a].bus_id);
    }
  }
  return ncclSuccess;
}

ncclResult_t Communicator::join(std::vector<Record> table, int rank) {
  ncclResult_t result = check_table(table);
  if (result == ncclSuccess) result = fabric_.connect(std::move(table), rank);
  return result;
}

ncclResult_t Communicator::create(const ncclUniqueId& id) {
  if (!enter()) return fail(ncclInternalError, "the communicator was aborted");
  Record own;
  ncclGetVersion(&own.version);  // by its public name, as the real one does
  own.rank = rank_;
  own.ranks = ranks_;
  std::vector<Record> table;
  Bootstrap bootstrap;
  ncclResult_t result = device_.bus_id(own.bus_id, sizeof own.bus_id);
  if (result == ncclSuccess) result = fabric_.open(ranks_, device_.number(), &own);
  if (result == ncclSuccess) result = bootstrap.exchange(id, own, cancel_.get(), &table);
  if (result == ncclSuccess) {
    result = bootstrap.confirm(join(std::move(table), rank_), cancel_.get());
  }
  if (result == ncclSuccess) result = settle();
  if (result != ncclSuccess) give_up(result);
  leave();
  return result;
}

/// All ranks have set up.
ncclResult_t Communicator::settle() {
  fabric_.seal();
  {
    std::lock_guard lock(mutex_);
    joined_ = true;
  }
  ContextScope scope(device_.context());
  return tuner_.open(hash(), fabric_.table());
}

/// The first member collects what every one has and hands all of it to all, in the members' order.
ncclResult_t Communicator::gather(const std::vector<int>& members, const void* own, uint64_t bytes,
                                  void* all) {
  auto part = [&](size_t index) { return static_cast<char*>(all) + index * bytes; };
  uint64_t total = bytes * members.size();
  const int first_rank = members.front();
  auto self =
      static_cast<size_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  ::memcpy(part(self), own, bytes);
  Exchange first(fabric_, Channel::kControl, ended_);
  Exchange second(fabric_, Channel::kControl, ended_);
  if (rank_ != first_rank) {
    first.send(first_rank, own, bytes);
    second.receive(first_rank, all, total);
  }
  for (size_t i = 1; i < members.size() && rank_ == first_rank; ++i) {
    first.receive(members[i], part(i), bytes);
    second.send(members[i], all, total);
  }
  ncclResult_t result = first.run();
  return result == ncclSuccess ? second.run() : result;
}

ncclResult_t Communicator::share_id(bool known, ncclUniqueId* id) {
  struct Offer {
    bool known;
    ncclUniqueId id;
  };
  if (!enter()) return fail(ncclInternalError, "the communicator was aborted");
  std::lock_guard control(control_);
  std::vector<int> members(static_cast<size_t>(ranks_));
  std::iota(members.begin(), members.end(), 0);
  std::vector<Offer> all(members.size());
  const Offer own{known, *id};
  ncclResult_t result = gather(members, &own, sizeof own, all.data());
  leave();
  if (result != ncclSuccess) return result;
  auto first = std::find_if(all.begin(), all.end(), [](const Offer& o) { return o.known; });
  if (first == all.end()) {
    return fail(ncclInvalidArgument, "ncclCommGrow: no rank of the communicator has the unique id");
  }
  *id = first->id;
  return ncclSuccess;
}

ncclResult_t Communicator::derive(Communicator& parent, const std::vector<int>& members,
                                  const Place& place, std::shared_ptr<Communicator>* child) {
  if (!parent.enter()) return fail(ncclInternalError, "the communicator was aborted");
  std::lock_guard control(parent.control_);
  const bool inside = place.color != NCCL_SPLIT_NOCOLOR;
  auto created = std::make_shared<Communicator>();
  created->blocking_ = place.blocking;
  Record own;
  own.rank = parent.rank_;
  own.color = place.color;
  own.order = place.order;
  ncclResult_t opened = ncclSuccess;
  if (inside) {
    opened = created->set_device(parent.device());
    if (opened == ncclSuccess) opened = created->device_.bus_id(own.bus_id, sizeof own.bus_id);
    if (opened == ncclSuccess) opened = created->fabric_.open(parent.ranks_, parent.device(), &own);
  }
  std::vector<Record> all(members.size());
  ncclResult_t result = parent.gather(members, &own, sizeof own, all.data());
  if (result == ncclSuccess && opened == ncclSuccess && inside) {
    std::erase_if(all, [&](const Record& record) { return record.color != place.color; });
    std::stable_sort(all.begin(), all.end(),
                     [](const Record& a, const Record& b) { return a.order < b.order; });
    auto self = std::find_if(all.begin(), all.end(),
                             [&](const Record& record) { return record.rank == parent.rank_; });
    created->set_rank(static_cast<int>(self - all.begin()), static_cast<int>(all.size()));
    opened = created->join(std::move(all), created->rank_);
  }
  std::vector<ncclResult_t> outcomes(members.size());
  if (result == ncclSuccess) {
    result = parent.gather(members, &opened, sizeof opened, outcomes.data());
  }
  parent.leave();
  if (opened != ncclSuccess) return opened;
  if (result != ncclSuccess) return result;
  for (ncclResult_t outcome : outcomes) {
    if (outcome != ncclSuccess) return fail(outcome, "another rank failed to make the child");
  }
  if (!inside) return ncclSuccess;
  result = created->settle();
  if (result == ncclSuccess) *child = std::move(created);
  return result;
}

}  // namespace railyard::emulator
