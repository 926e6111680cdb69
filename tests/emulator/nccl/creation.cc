// SPDX-License-Identifier: Apache-2.0
//
// How communicators come into being: from a unique id, or by splitting another.
#include <string.h>

#include <algorithm>
#include <utility>

#include "communicator.h"
#include "exchange.h"
#include "result.h"

namespace railyard::emulator {

uint64_t Communicator::hash() const {
  const Key& key = fabric_.table().front().key;
  return key.words[0] ^ key.words[1];
}

ncclResult_t Communicator::check_table(const std::vector<Record>& table) const {
  for (size_t a = 0; a < table.size(); ++a) {
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
  if (result == ncclSuccess) {
    fabric_.seal();
    std::lock_guard lock(mutex_);
    joined_ = true;
  } else {
    give_up(result);
  }
  leave();
  return result;
}

/// Rank 0 collects what every rank has and hands all of it to all.
ncclResult_t Communicator::gather(const void* own, uint64_t bytes, void* all) {
  auto part = [&](int rank) {
    return static_cast<char*>(all) + static_cast<uint64_t>(rank) * bytes;
  };
  uint64_t total = bytes * static_cast<uint64_t>(ranks_);
  ::memcpy(part(rank_), own, bytes);
  Exchange first(fabric_, Channel::kControl, aborted_);
  Exchange second(fabric_, Channel::kControl, aborted_);
  if (rank_ != 0) {
    first.send(0, own, bytes);
    second.receive(0, all, total);
  }
  for (int peer = 1; peer < ranks_ && rank_ == 0; ++peer) {
    first.receive(peer, part(peer), bytes);
    second.send(peer, all, total);
  }
  ncclResult_t result = first.run();
  return result == ncclSuccess ? second.run() : result;
}

ncclResult_t Communicator::split(Communicator& parent, int color, int order,
                                 std::shared_ptr<Communicator>* child) {
  if (!parent.enter()) return fail(ncclInternalError, "the communicator was aborted");
  std::lock_guard control(parent.control_);
  auto created = std::make_shared<Communicator>();
  Record own;
  own.rank = parent.rank_;
  own.color = color;
  own.order = order;
  ncclResult_t opened = ncclSuccess;
  if (color != NCCL_SPLIT_NOCOLOR) {
    opened = created->set_device(parent.device());
    if (opened == ncclSuccess) opened = created->device_.bus_id(own.bus_id, sizeof own.bus_id);
    if (opened == ncclSuccess) opened = created->fabric_.open(parent.ranks_, parent.device(), &own);
  }
  auto count = static_cast<size_t>(parent.ranks_);
  std::vector<Record> all(count);
  ncclResult_t result = parent.gather(&own, sizeof own, all.data());
  if (result == ncclSuccess && opened == ncclSuccess && color != NCCL_SPLIT_NOCOLOR) {
    std::erase_if(all, [&](const Record& record) { return record.color != color; });
    std::stable_sort(all.begin(), all.end(),
                     [](const Record& a, const Record& b) { return a.order < b.order; });
    auto self = std::find_if(all.begin(), all.end(),
                             [&](const Record& record) { return record.rank == parent.rank_; });
    created->set_rank(static_cast<int>(self - all.begin()), static_cast<int>(all.size()));
    opened = created->join(std::move(all), created->rank_);
  }
  std::vector<ncclResult_t> outcomes(count);
  if (result == ncclSuccess) result = parent.gather(&opened, sizeof opened, outcomes.data());
  parent.leave();
  if (opened != ncclSuccess) return opened;
  if (result != ncclSuccess) return result;
  for (ncclResult_t outcome : outcomes) {
    if (outcome != ncclSuccess) return fail(outcome, "another rank failed to split");
  }
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  created->fabric_.seal();
  created->joined_ = true;
  *child = std::move(created);
  return ncclSuccess;
}

}  // namespace railyard::emulator
