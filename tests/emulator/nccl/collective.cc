// SPDX-License-Identifier: Apache-2.0
#include "collective.h"

#include <string.h>

#include <algorithm>

#include "exchange.h"
#include "reduce.h"
#include "result.h"

namespace railyard::emulator {
namespace {

const char* at(const void* base, uint64_t offset) {
  return static_cast<const char*>(base) + offset;
}
char* at(void* base, uint64_t offset) { return static_cast<char*>(base) + offset; }

void copy(void* target, const void* source, uint64_t bytes) {
  if (target != source && bytes > 0) ::memmove(target, source, bytes);
}

uint64_t bytes_of(const Task& task) { return task.count * type_size(task.type); }

/// The part of `count` elements that a rank reduces in an all-reduce.
struct Block {
  uint64_t offset;  ///< bytes
  uint64_t bytes;
};

Block block_of(const Task& task, int rank, int ranks) {
  auto n = static_cast<uint64_t>(ranks);
  auto r = static_cast<uint64_t>(rank);
  uint64_t each = (task.count + n - 1) / n;
  uint64_t first = std::min(r * each, task.count);
  uint64_t last = std::min(first + each, task.count);
  return Block{first * type_size(task.type), (last - first) * type_size(task.type)};
}

/// Adds one collective to an exchange, seen from one rank.
class Builder {
 public:
  Builder(const Task& task, const Fabric& fabric, Exchange* exchange)
      : task_(task), rank_(fabric.rank()), ranks_(fabric.ranks()), exchange_(exchange) {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != rank_) others_.push_back(peer);
    }
  }

  void build(const void* input) {
    switch (task_.kind) {
      case Task::Kind::kBroadcast:
        return broadcast(input);
      case Task::Kind::kReduce:
        return reduce(input);
      case Task::Kind::kAllGather:
        return all_gather(input);
      case Task::Kind::kReduceScatter:
        return reduce_scatter(input);
      case Task::Kind::kAllReduce:
        return all_reduce(input);
      case Task::Kind::kSend:
      case Task::Kind::kReceive:
        return;
    }
  }

 private:
  void broadcast(const void* input) {
    if (rank_ != task_.peer) return exchange_->receive(task_.peer, task_.receive, bytes_of(task_));
    copy(task_.receive, input, bytes_of(task_));
    for (int peer : others_) exchange_->send(peer, input, bytes_of(task_));
  }

  void reduce(const void* input) {
    if (rank_ != task_.peer) return exchange_->send(task_.peer, input, bytes_of(task_));
    reduce_here(input, task_.receive, bytes_of(task_));
  }

  void all_gather(const void* input) {
    uint64_t bytes = bytes_of(task_);
    copy(at(task_.receive, block_offset(rank_)), input, bytes);
    for (int peer : others_) {
      exchange_->send(peer, input, bytes);
      exchange_->receive(peer, at(task_.receive, block_offset(peer)), bytes);
    }
  }

  void reduce_scatter(const void* input) {
    for (int peer : others_) exchange_->send(peer, at(input, block_offset(peer)), bytes_of(task_));
    reduce_here(at(input, block_offset(rank_)), task_.receive, bytes_of(task_));
  }

  /// Each rank reduces one block and sends the result to all.
  void all_reduce(const void* input) {
    Block own = block_of(task_, rank_, ranks_);
    for (int peer : others_) {
      Block block = block_of(task_, peer, ranks_);
      if (block.bytes > 0) exchange_->send(peer, at(input, block.offset), block.bytes);
    }
    char* result = at(task_.receive, own.offset);
    if (own.bytes > 0) reduce_here(at(input, own.offset), result, own.bytes);
    for (int peer : others_) {
      Block block = block_of(task_, peer, ranks_);
      if (own.bytes > 0) exchange_->send_reduced(peer, result, own.bytes);
      if (block.bytes > 0) {
        exchange_->receive(peer, at(task_.receive, block.offset), block.bytes);
      }
    }
  }

  void reduce_here(const void* own, void* target, uint64_t bytes) {
    exchange_->reduce(Reduction{own, target, bytes, task_.type, task_.op.base});
  }

  uint64_t block_offset(int rank) const { return static_cast<uint64_t>(rank) * bytes_of(task_); }

  const Task& task_;
  const int rank_;
  const int ranks_;
  Exchange* const exchange_;
  std::vector<int> others_;
};

}  // namespace

ncclResult_t run_collective(const Task& task, Fabric& fabric, const std::atomic<bool>& aborted) {
  const void* input = task.send;
  std::vector<char> scaled;
  if (task.op.scaled) {
    uint64_t blocks =
        task.kind == Task::Kind::kReduceScatter ? static_cast<uint64_t>(fabric.ranks()) : 1;
    const void* scalar = task.op.scalar != nullptr ? task.op.scalar : task.op.value.data();
    scaled.resize(bytes_of(task) * blocks);
    scale(task.type, task.send, scalar, task.count * blocks, scaled.data());
    input = scaled.data();
  }
  Exchange exchange(fabric, Channel::kCollective, aborted);
  Builder(task, fabric, &exchange).build(input);
  return exchange.run();
}

ncclResult_t run_point_to_point(const std::vector<Task>& tasks, Fabric& fabric,
                                const std::atomic<bool>& aborted, Traffic* traffic) {
  Exchange exchange(fabric, Channel::kPoint, aborted);
  std::vector<const Task*> to_self;
  std::vector<const Task*> from_self;
  Traffic sent;
  for (const Task& task : tasks) {
    bool sends = task.kind == Task::Kind::kSend;
    bool self = task.peer == fabric.rank();
    if (sends) {
      auto& count = self ? sent.self : fabric.local(task.peer) ? sent.intranode : sent.internode;
      count.bytes += bytes_of(task);
      ++count.messages;
    }
    if (self) {
      (sends ? to_self : from_self).push_back(&task);
    } else if (sends) {
      exchange.send(task.peer, task.send, bytes_of(task));
    } else {
      exchange.receive(task.peer, task.receive, bytes_of(task));
    }
  }
  for (size_t i = 0; i < to_self.size(); ++i) {
    copy(from_self[i]->receive, to_self[i]->send, bytes_of(*to_self[i]));
  }
  ncclResult_t result = exchange.run();
  if (result != ncclSuccess) return result;
  auto add = [](Traffic::Count* total, const Traffic::Count& more) {
    total->bytes += more.bytes;
    total->messages += more.messages;
  };
  add(&traffic->internode, sent.internode);
  add(&traffic->intranode, sent.intranode);
  add(&traffic->self, sent.self);
  return ncclSuccess;
}

ncclResult_t check_self(const std::vector<Task>& tasks, int rank) {
  std::vector<uint64_t> sent;
  std::vector<uint64_t> received;
  for (const Task& task : tasks) {
    if (task.peer != rank) continue;
    (task.kind == Task::Kind::kSend ? sent : received).push_back(bytes_of(task));
  }
  if (sent == received) return ncclSuccess;
  return fail(ncclInvalidUsage,
              "rank %d: messages to oneself must be sent and received in one group and with equal "
              "sizes; %zu sent, %zu received",
              rank, sent.size(), received.size());
}

}  // namespace railyard::emulator
