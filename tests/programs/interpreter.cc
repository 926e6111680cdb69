// SPDX-License-Identifier: Apache-2.0
#include "interpreter.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "reference.h"
#include "require.h"

namespace programs {
namespace {

using property::fail;

bool joined(const std::vector<int>& members, const std::vector<int>& node_of) {
  std::set<int> nodes;
  for (int rank : members) nodes.insert(node_of[static_cast<size_t>(rank)]);
  return nodes.size() > 1 && nodes.size() < members.size();
}

void* upload(const Bytes& bytes) {
  if (bytes.empty()) return nullptr;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, bytes.size()));
  REQUIRE(cudaMemcpy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  return memory;
}

}  // namespace

Interpreter::Interpreter(uint64_t seed, Place place, std::FILE* report)
    : seed_(seed),
      place_(std::move(place)),
      program_(generate(seed, place_.ranks)),
      random_({seed, 2, static_cast<uint64_t>(place_.rank)}),
      report_(report) {
  for (int i = 0; i < 3; ++i) {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    streams_.push_back(stream);
  }
}

Interpreter::~Interpreter() {
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
}

void Interpreter::run(const std::vector<ncclUniqueId>& ids, bool spoil) {
  spoil_ = spoil;
  for (const Step& step : program_.steps) {
    switch (step.action) {
      case Action::kMake:
        make(step, ids);
        break;
      case Action::kSplit:
        split(step);
        break;
      case Action::kShrink:
        shrink(step);
        break;
      case Action::kEnd:
        end(step);
        break;
      case Action::kGroup:
        group(step);
        break;
    }
  }
  std::fprintf(report_, "%llu rank %d taken_over %llu left %llu launches %llu\n",
               static_cast<unsigned long long>(seed_), place_.rank,
               static_cast<unsigned long long>(taken_over_), static_cast<unsigned long long>(left_),
               static_cast<unsigned long long>(launches_));
}

void Interpreter::born(const std::vector<Birth>& births, ncclComm_t handle) {
  for (const Birth& birth : births) {
    const auto found = std::find(birth.members.begin(), birth.members.end(), place_.rank);
    if (found == birth.members.end()) continue;
    const Member member{handle, static_cast<int>(found - birth.members.begin())};
    int rank = -1, count = -1;
    REQUIRE(ncclCommUserRank(handle, &rank));
    REQUIRE(ncclCommCount(handle, &count));
    if (rank != member.rank || count != static_cast<int>(birth.members.size())) {
      fail("communicator " + std::to_string(birth.number) + " has another rank or size");
    }
    communicators_[birth.number] = member;
    return;
  }
  if (handle != nullptr) fail("a communicator came about that should not");
}

void Interpreter::make(const Step& step, const std::vector<ncclUniqueId>& ids) {
  const std::vector<int>& members = step.births.front().members;
  const auto found = std::find(members.begin(), members.end(), place_.rank);
  if (found == members.end()) return;
  ncclComm_t handle = nullptr;
  REQUIRE(ncclCommInitRank(&handle, static_cast<int>(members.size()),
                           ids.at(static_cast<size_t>(step.unique_id)),
                           static_cast<int>(found - members.begin())));
  born(step.births, handle);
}

void Interpreter::split(const Step& step) {
  const auto parent = communicators_.find(step.communicator);
  if (parent == communicators_.end()) return;
  const auto rank = static_cast<size_t>(parent->second.rank);
  ncclComm_t handle = nullptr;
  REQUIRE(ncclCommSplit(parent->second.handle, step.color[rank], step.key[rank], &handle, nullptr));
  born(step.births, handle);
}

void Interpreter::shrink(const Step& step) {
  const auto parent = communicators_.find(step.communicator);
  if (parent == communicators_.end()) return;
  std::vector<int> excluded = step.excluded;
  if (std::find(excluded.begin(), excluded.end(), parent->second.rank) != excluded.end()) return;
  ncclComm_t handle = nullptr;
  REQUIRE(ncclCommShrink(parent->second.handle, excluded.data(), static_cast<int>(excluded.size()),
                         &handle, nullptr, NCCL_SHRINK_DEFAULT));
  born(step.births, handle);
}

void Interpreter::end(const Step& step) {
  const auto found = communicators_.find(step.communicator);
  if (found == communicators_.end()) return;
  synchronize();
  const ncclComm_t handle = found->second.handle;
  communicators_.erase(found);
  if (step.ending == Ending::kAbort) return REQUIRE(ncclCommAbort(handle));
  if (step.ending == Ending::kFinalize) REQUIRE(ncclCommFinalize(handle));
  REQUIRE(ncclCommDestroy(handle));
}

Interpreter::Pending Interpreter::prepare(const Operation& operation, int rank) {
  const std::vector<int>& members = program_.members[static_cast<size_t>(operation.communicator)];
  Pending pending;
  pending.operation = operation;
  pending.send = upload(sent(seed_, operation, members, rank));
  Bytes room = received(seed_, operation, members, rank);
  pending.receive_bytes = room.size();
  std::fill(room.begin(), room.end(), std::byte{0xEE});
  pending.receive = upload(room);
  return pending;
}

void Interpreter::count_traffic(const Operation& operation, int rank, int times) {
  const std::vector<int>& members = program_.members[static_cast<size_t>(operation.communicator)];
  const std::vector<uint64_t> bytes = message_bytes(operation, members.size(), rank);
  const int node = place_.node_of[static_cast<size_t>(place_.rank)];
  for (size_t peer = 0; peer < members.size(); ++peer) {
    if (place_.node_of[static_cast<size_t>(members[peer])] == node) continue;
    (joined(members, place_.node_of) ? taken_over_ : left_) +=
        bytes[peer] * static_cast<uint64_t>(times);
  }
}

/// The step's operations in an order of this rank's own. NCCL wants the same order everywhere of
/// a communicator's collectives, and of the messages of each pair.
std::vector<const Interpreter::Pending*> Interpreter::own_order(const Step& step, size_t first) {
  std::set<int> ordered;  // communicators whose messages all keep their order
  for (const Operation& o : step.operations) {
    if (o.made_of_messages() && o.kind != Kind::kMessage) ordered.insert(o.communicator);
  }
  using Lane = std::tuple<int, int, int>;
  std::map<Lane, std::vector<const Pending*>> lanes;
  std::vector<Lane> turns;
  for (size_t i = first; i < pending_.size(); ++i) {
    const Operation& o = pending_[i]->operation;
    Lane lane{o.communicator, -1, -1};
    if (o.made_of_messages()) {
      lane = ordered.count(o.communicator) != 0 ? Lane{o.communicator, -2, -2}
                                                : Lane{o.communicator, o.root, o.peer};
    }
    lanes[lane].push_back(pending_[i].get());
    turns.push_back(lane);
  }
  random_.shuffle(turns);
  std::map<Lane, size_t> next;
  std::vector<const Pending*> order;
  for (const Lane& lane : turns) order.push_back(lanes[lane][next[lane]++]);
  return order;
}

void Interpreter::group(const Step& step) {
  if (step.barrier) synchronize();
  const size_t first = pending_.size();
  for (const Operation& operation : step.operations) {
    const auto member = communicators_.find(operation.communicator);
    if (member == communicators_.end() || !takes_part(operation, member->second.rank)) continue;
    pending_.push_back(std::make_unique<Pending>(prepare(operation, member->second.rank)));
    count_traffic(operation, member->second.rank, step.times);
  }
  if (pending_.size() == first) return;
  const std::vector<const Pending*> order = own_order(step, first);
  if (step.times > 1 && random_.chance(0.5)) {
    graphs_.push_back(std::make_unique<property::Graph>(streams_, cudaStreamCaptureModeThreadLocal,
                                                        [&] { post(order); }));
    for (int i = 0; i < step.times; ++i) graphs_.back()->launch();
    launches_ += static_cast<uint64_t>(step.times);
  } else {
    for (int i = 0; i < step.times; ++i) post(order);
  }
  if (step.barrier || random_.chance(0.2)) synchronize();
}

void Interpreter::post(const std::vector<const Pending*>& operations) {
  if (operations.size() == 1 && random_.chance(0.5)) {
    return call(*operations.front(), streams_[random_.below(streams_.size())]);
  }
  const bool several = random_.chance(0.3);
  REQUIRE(ncclGroupStart());
  int depth = 0;
  for (const Pending* pending : operations) {
    if (random_.chance(0.2)) {
      REQUIRE(ncclGroupStart());
      ++depth;
    }
    call(*pending, streams_[several ? random_.below(streams_.size()) : 0]);
    if (depth > 0 && random_.chance(0.5)) {
      REQUIRE(ncclGroupEnd());
      --depth;
    }
  }
  for (; depth >= 0; --depth) REQUIRE(ncclGroupEnd());
}

void Interpreter::call(const Pending& pending, cudaStream_t stream) {
  const Operation& o = pending.operation;
  const Member& member = communicators_.at(o.communicator);
  const ncclComm_t comm = member.handle;
  switch (o.kind) {
    case Kind::kMessage:
      // To itself a rank sends and receives in one group.
      REQUIRE(ncclGroupStart());
      if (member.rank == o.root) {
        REQUIRE(ncclSend(pending.send, o.count, o.type, o.peer, comm, stream));
      }
      if (member.rank == o.peer) {
        REQUIRE(ncclRecv(pending.receive, o.count, o.type, o.root, comm, stream));
      }
      return REQUIRE(ncclGroupEnd());
    case Kind::kAllToAll:
      return REQUIRE(ncclAlltoAll(pending.send, pending.receive, o.count, o.type, comm, stream));
    case Kind::kGather:
      return REQUIRE(
          ncclGather(pending.send, pending.receive, o.count, o.type, o.root, comm, stream));
    case Kind::kScatter:
      return REQUIRE(
          ncclScatter(pending.send, pending.receive, o.count, o.type, o.root, comm, stream));
    case Kind::kAllReduce:
      return REQUIRE(
          ncclAllReduce(pending.send, pending.receive, o.count, o.type, o.reduction, comm, stream));
    case Kind::kReduce:
      return REQUIRE(ncclReduce(pending.send, pending.receive, o.count, o.type, o.reduction, o.root,
                                comm, stream));
    case Kind::kBroadcast:
      return REQUIRE(
          ncclBroadcast(pending.send, pending.receive, o.count, o.type, o.root, comm, stream));
    case Kind::kAllGather:
      return REQUIRE(ncclAllGather(pending.send, pending.receive, o.count, o.type, comm, stream));
    case Kind::kReduceScatter:
      return REQUIRE(ncclReduceScatter(pending.send, pending.receive, o.count, o.type, o.reduction,
                                       comm, stream));
  }
}

void Interpreter::synchronize() {
  for (cudaStream_t stream : streams_) REQUIRE(cudaStreamSynchronize(stream));
  for (const auto& pending : pending_) check(*pending);
  pending_.clear();
  graphs_.clear();
}

void Interpreter::check(const Pending& pending) {
  const Operation& o = pending.operation;
  const Member& member = communicators_.at(o.communicator);
  const std::vector<int>& members = program_.members[static_cast<size_t>(o.communicator)];
  Bytes got(pending.receive_bytes);
  if (!got.empty()) {
    REQUIRE(cudaMemcpy(got.data(), pending.receive, got.size(), cudaMemcpyDeviceToHost));
    if (std::exchange(spoil_, false)) got.back() ^= std::byte{1};
  }
  const Bytes wanted = received(seed_, o, members, member.rank);
  const auto [a, b] = std::mismatch(got.begin(), got.end(), wanted.begin());
  if (a != got.end()) {
    fail("seed " + std::to_string(seed_) + ", rank " + std::to_string(place_.rank) + ": " +
         o.describe() + ": byte " + std::to_string(a - got.begin()) + " is " +
         std::to_string(static_cast<int>(*a)) + ", not " + std::to_string(static_cast<int>(*b)));
  }
  uint64_t hash = 0;
  for (std::byte byte : got) hash = property::scramble(hash ^ static_cast<uint64_t>(byte)) + 1;
  std::fprintf(report_, "%llu rank %d %s: %016llx\n", static_cast<unsigned long long>(seed_),
               place_.rank, o.describe().c_str(), static_cast<unsigned long long>(hash));
  REQUIRE(cudaFree(pending.send));
  REQUIRE(cudaFree(pending.receive));
}

}  // namespace programs
