// SPDX-License-Identifier: Apache-2.0
#include "intercept/group.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/checked.h"
#include "base/log.h"

namespace railyard::intercept {
namespace {

/// What NCCL returns for a call that fail() makes so that it cancels its part of a group.
constexpr ncclResult_t kPoisoned = ncclInvalidArgument;

bool is_success(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

bool is_nonblocking(const Batch& batch) { return !batch.communicator->standing.blocking; }

void* block_of(const void* buffer, int index, uint64_t bytes) {
  return static_cast<std::byte*>(const_cast<void*>(buffer)) + static_cast<uint64_t>(index) * bytes;
}

}  // namespace

ncclResult_t Group::start() {
  const ncclResult_t result = forward(runtime_.nccl.ncclGroupStart);
  if (result == ncclSuccess) ++depth_;
  return result;
}

ncclResult_t Group::end() {
  return close([this] { return forward(runtime_.nccl.ncclGroupEnd); }, false);
}

ncclResult_t Group::simulate_end(ncclSimInfo_t* info) {
  if (runtime_.nccl.ncclGroupSimulateEnd == nullptr) return ncclInvalidUsage;
  return close([this, info] { return forward(runtime_.nccl.ncclGroupSimulateEnd, info); },
               info != nullptr);
}

template <typename RealEnd>
ncclResult_t Group::close(RealEnd real_end, bool simulated) {
  if (depth_ != 1) {  // an inner end, or one without a start: NCCL knows what to say
    if (depth_ > 1) --depth_;
    return real_end();
  }
  // NCCL simulates blocking groups only.
  simulated = simulated && std::none_of(content_.batches.begin(), content_.batches.end(),
                                        [](const Batch& b) { return is_nonblocking(b); });
  // What can be found wrong is found before NCCL starts its part; an earlier error stands.
  for (const Batch& batch : content_.batches) {
    if (content_.error != ncclSuccess) break;
    Status status = check_self(batch);
    if (status.ok() && !simulated) status = lead_in(runtime_, batch);
    if (status.ok()) continue;
    log::warn("%s", status.message().c_str());
    fail(status);
  }
  if (!simulated && content_.error == ncclSuccess) {
    say_farewells(std::exchange(content_.farewells, {}));
  }
  Content content = std::exchange(content_, {});
  depth_ = 0;

  const ncclResult_t nccls = real_end();
  simulated = simulated && nccls != ncclInProgress;
  ncclResult_t result = nccls;
  // NCCL knows of our errors as kPoisoned. Anything else is an error of its own that came later.
  if (content.error != ncclSuccess && (is_success(nccls) || nccls == kPoisoned)) {
    result = content.error;
  }
  for (const Creation& creation : content.creations) {
    content.others.push_back(creation.parent != nullptr ? creation.parent : *creation.target);
  }
  const ncclResult_t outcome = simulated ? ncclInvalidUsage : result;
  for (Creation& creation : content.creations) {
    const ncclResult_t settled =
        runtime_.outstanding.settle(runtime_, std::move(creation), outcome);
    if (result == ncclSuccess) result = settled;
  }
  if (simulated || !is_success(result) || content.batches.empty()) return result;
  if (nccls == ncclInProgress) {
    // Messages follow NCCL's part of the group, which has this state on all communicators.
    runtime_.outstanding.park(std::move(content.batches), std::move(content.others));
    return result;
  }
  const ncclResult_t launched = launch_all(runtime_, std::move(content.batches));
  return launched == ncclSuccess ? result : launched;
}

void Group::say_farewells(std::vector<Farewell> farewells) {
  std::stable_sort(farewells.begin(), farewells.end(), [](const Farewell& a, const Farewell& b) {
    return a.communicator->order() < b.communicator->order();
  });
  for (const Farewell& farewell : farewells) {
    const ncclResult_t said = say(runtime_, farewell);
    if (said != ncclSuccess) content_.error = said;
  }
}

ncclResult_t Group::send(const void* buffer, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream) {
  if (busy(comm)) return refuse_busy();
  const Ours ours =
      count == 0 ? taken_over(comm, type, peer, {}) : taken_over(comm, type, peer, {buffer});
  if (ours == nullptr) {
    return pass(comm, runtime_.nccl.ncclSend, buffer, count, type, peer, comm, stream);
  }
  return message(true, const_cast<void*>(buffer), count, type, peer, comm, stream, ours);
}

ncclResult_t Group::recv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream) {
  if (busy(comm)) return refuse_busy();
  const Ours ours =
      count == 0 ? taken_over(comm, type, peer, {}) : taken_over(comm, type, peer, {buffer});
  if (ours == nullptr) {
    return pass(comm, runtime_.nccl.ncclRecv, buffer, count, type, peer, comm, stream);
  }
  return message(false, buffer, count, type, peer, comm, stream, ours);
}

ncclResult_t Group::message(bool is_send, void* buffer, size_t count, ncclDataType_t type, int peer,
                            ncclComm_t comm, cudaStream_t stream, const Ours& ours) {
  if (Status status = ready(*ours); !status.ok()) return fail(status);
  const auto bytes = checked_mul(count, type_bytes(type));
  if (!bytes.has_value()) {
    return fail(Status::error(Code::kInvalidArgument,
                              "a message of %zu elements is larger than memory can be", count));
  }
  const Result<Batch*> batch = batch_of(comm, ours, stream);
  if (!batch.ok()) return fail(batch.status());
  exchange::Exchange& exchange = (*batch)->exchange;
  (is_send ? exchange.sends : exchange.recvs).push_back({peer, buffer, *bytes});
  return added();
}

template <typename Fill>
ncclResult_t Group::collective(size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream, const Ours& ours, Fill fill) {
  if (Status status = ready(*ours); !status.ok()) return fail(status);
  if (count == 0) return ncclSuccess;  // NCCL drops collectives of no elements
  const auto ranks = static_cast<uint64_t>(ours->ranks());
  const auto block = checked_mul(count, type_bytes(type));
  if (!block.has_value() || !checked_mul(*block, ranks).has_value()) {
    return fail(Status::error(Code::kInvalidArgument,
                              "a collective of %zu elements per rank is larger than memory can be",
                              count));
  }
  const Result<Batch*> batch = batch_of(comm, ours, stream);
  if (!batch.ok()) return fail(batch.status());
  fill((*batch)->exchange, *block);
  return added();
}

ncclResult_t Group::all_to_all(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream) {
  if (busy(comm)) return refuse_busy();
  const Ours ours = taken_over(comm, type, 0, {from, to});
  if (ours == nullptr) {
    return runtime_.nccl.ncclAlltoAll != nullptr
               ? pass(comm, runtime_.nccl.ncclAlltoAll, from, to, count, type, comm, stream)
               : grouped_all_to_all(from, to, count, type, comm, stream);
  }
  return collective(count, type, comm, stream, ours, [&](exchange::Exchange& e, uint64_t block) {
    for (int peer = 0; peer < ours->ranks(); ++peer) {
      e.sends.push_back({peer, block_of(from, peer, block), block});
      e.recvs.push_back({peer, block_of(to, peer, block), block});
    }
  });
}

ncclResult_t Group::gather(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  if (busy(comm)) return refuse_busy();
  const Ours ours = taken_over(comm, type, root, {from, to});
  if (ours == nullptr || runtime_.nccl.ncclGather == nullptr) {
    return pass(comm, runtime_.nccl.ncclGather, from, to, count, type, root, comm, stream);
  }
  return collective(count, type, comm, stream, ours, [&](exchange::Exchange& e, uint64_t block) {
    e.sends.push_back({root, block_of(from, 0, block), block});
    for (int peer = 0; ours->rank() == root && peer < ours->ranks(); ++peer) {
      e.recvs.push_back({peer, block_of(to, peer, block), block});
    }
  });
}

ncclResult_t Group::scatter(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream) {
  if (busy(comm)) return refuse_busy();
  const Ours ours = taken_over(comm, type, root, {from, to});
  if (ours == nullptr || runtime_.nccl.ncclScatter == nullptr) {
    return pass(comm, runtime_.nccl.ncclScatter, from, to, count, type, root, comm, stream);
  }
  return collective(count, type, comm, stream, ours, [&](exchange::Exchange& e, uint64_t block) {
    for (int peer = 0; ours->rank() == root && peer < ours->ranks(); ++peer) {
      e.sends.push_back({peer, block_of(from, peer, block), block});
    }
    e.recvs.push_back({root, block_of(to, 0, block), block});
  });
}

template <typename... Parameters, typename... Args>
ncclResult_t Group::outside(ncclComm_t comm, cudaStream_t stream,
                            ncclResult_t (*real)(Parameters...), Args... args) {
  if (busy(comm)) return refuse_busy();
  const Ours ours = taken_over(comm);
  if (ours == nullptr) return pass(comm, real, args...);
  if (Status status = ready(*ours); !status.ok()) return fail(status);
  if (open()) {
    const ncclResult_t result = pass(comm, real, args...);
    if (!is_success(result)) return result;
    const Result<Batch*> batch = batch_of(comm, ours, stream, true);
    return batch.ok() ? result : fail(batch.status());
  }
  const std::array<cudaStream_t, 1> streams = {stream};
  exchange::Engine& engine = *ours->engine();
  if (Status status = runtime_.engines.begin_outside(engine, streams); !status.ok()) {
    return fail(status);
  }
  const ncclResult_t result = forward(real, args...);
  if (result != ncclSuccess) return result;
  return runtime_.last_error.set(runtime_.engines.end_outside(engine, streams));
}

ncclResult_t Group::reduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
  return outside(comm, stream, runtime_.nccl.ncclReduce, from, to, count, type, operation, root,
                 comm, stream);
}

ncclResult_t Group::bcast(void* buffer, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, cudaStream_t stream) {
  return outside(comm, stream, runtime_.nccl.ncclBcast, buffer, count, type, root, comm, stream);
}

ncclResult_t Group::broadcast(const void* from, void* to, size_t count, ncclDataType_t type,
                              int root, ncclComm_t comm, cudaStream_t stream) {
  return outside(comm, stream, runtime_.nccl.ncclBroadcast, from, to, count, type, root, comm,
                 stream);
}

ncclResult_t Group::all_reduce(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return outside(comm, stream, runtime_.nccl.ncclAllReduce, from, to, count, type, operation, comm,
                 stream);
}

ncclResult_t Group::reduce_scatter(const void* from, void* to, size_t count, ncclDataType_t type,
                                   ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return outside(comm, stream, runtime_.nccl.ncclReduceScatter, from, to, count, type, operation,
                 comm, stream);
}

ncclResult_t Group::all_gather(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream) {
  return outside(comm, stream, runtime_.nccl.ncclAllGather, from, to, count, type, comm, stream);
}

/// For programs built for a newer NCCL than the one they run with.
ncclResult_t Group::grouped_all_to_all(const void* from, void* to, size_t count,
                                       ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  const NcclLibrary& nccl = runtime_.nccl;
  int ranks = 0;
  ncclResult_t result = forward(nccl.ncclCommCount, comm, &ranks);
  if (result == ncclSuccess && type_bytes(type) == 0) result = ncclInvalidArgument;
  if (result != ncclSuccess || count == 0) return note(result);
  const size_t block = count * type_bytes(type);
  result = forward(nccl.ncclGroupStart);
  for (int peer = 0; peer < ranks && result == ncclSuccess; ++peer) {
    const size_t offset = static_cast<size_t>(peer) * block;
    result = forward(nccl.ncclSend, static_cast<const std::byte*>(from) + offset, count, type, peer,
                     comm, stream);
    if (result != ncclSuccess) break;
    result = forward(nccl.ncclRecv, static_cast<std::byte*>(to) + offset, count, type, peer, comm,
                     stream);
  }
  const ncclResult_t ended = forward(nccl.ncclGroupEnd);
  return passed(comm, result != ncclSuccess ? result : ended);
}

template <typename... Parameters, typename... Args>
ncclResult_t Group::pass(ncclComm_t comm, ncclResult_t (*real)(Parameters...), Args... args) {
  return passed(comm, forward(real, args...));
}

ncclResult_t Group::passed(ncclComm_t comm, ncclResult_t result) {
  std::vector<ncclComm_t>& others = content_.others;
  if (open() && is_success(result) &&
      std::find(others.begin(), others.end(), comm) == others.end()) {
    others.push_back(comm);
  }
  return note(result);
}

ncclResult_t Group::note(ncclResult_t result) {
  if (open() && !is_success(result)) content_.error = result;
  return result;
}

ncclResult_t Group::add(Creation creation, ncclResult_t result) {
  note(result);
  if (!open() || !is_success(result)) {
    return runtime_.outstanding.settle(runtime_, std::move(creation), result);
  }
  content_.creations.push_back(std::move(creation));
  return result;
}

ncclResult_t Group::add(Farewell farewell) {
  if (!open()) return say(runtime_, farewell);
  content_.farewells.push_back(std::move(farewell));
  return ncclSuccess;
}

bool Group::busy(ncclComm_t comm) {
  if (!runtime_.outstanding.busy(comm)) return false;
  // NCCL, too, looks whether it is done by now before it refuses.
  ncclResult_t state = ncclSuccess;
  if (forward(runtime_.nccl.ncclCommGetAsyncError, comm, &state) == ncclSuccess) {
    runtime_.outstanding.advance(runtime_, comm, state);
  }
  return runtime_.outstanding.busy(comm);
}

ncclResult_t Group::refuse_busy() {
  return fail(Status::error(Code::kInvalidArgument,
                            "the communicator is still busy with a non-blocking call; poll "
                            "ncclCommGetAsyncError until it is not ncclInProgress"));
}

/// A non-blocking communicator keeps any error, that of an argument too.
bool Group::failed(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  return forward(runtime_.nccl.ncclCommGetAsyncError, comm, &state) == ncclSuccess &&
         !is_success(state);
}

Group::Ours Group::taken_over(ncclComm_t comm) {
  if (comm == nullptr) return nullptr;
  Ours known = runtime_.manager.find(comm);
  if (known == nullptr || known->engine() == nullptr) return nullptr;
  // What NCCL's rules forbid now, NCCL refuses.
  const comm::Communicator::Standing& standing = known->standing;
  if (standing.revoked || standing.suspended || standing.finalized) return nullptr;
  if (!standing.blocking && failed(comm)) return nullptr;
  return known;
}

Group::Ours Group::taken_over(ncclComm_t comm, ncclDataType_t type, int peer,
                              std::initializer_list<const void*> memory) {
  Ours known = taken_over(comm);
  if (known == nullptr) return nullptr;
  if (type_bytes(type) == 0 || peer < 0 || peer >= known->ranks()) return nullptr;
  const auto may_use = [&](const void* address) {
    return runtime_.engines.may_use(*known->engine(), address);
  };
  if (runtime_.check_pointers && !std::all_of(memory.begin(), memory.end(), may_use)) {
    return nullptr;
  }
  return known;
}

Status Group::ready(const comm::Communicator& communicator) {
  return runtime_.engines.error(*const_cast<comm::Communicator&>(communicator).engine());
}

Result<Batch*> Group::batch_of(ncclComm_t comm, const Ours& ours, cudaStream_t stream,
                               bool by_nccl) {
  auto batch = std::find_if(content_.batches.begin(), content_.batches.end(),
                            [comm](const Batch& b) { return b.handle == comm; });
  if (batch == content_.batches.end()) {
    content_.batches.push_back({comm, ours, {}, {}, {}});
    batch = content_.batches.end() - 1;
  }
  if (batch->use_stream(stream, by_nccl)) {
    const Status status = runtime_.engines.check_streams(*ours->engine(), batch->all_streams());
    if (!status.ok()) return status;
  }
  return &*batch;
}

ncclResult_t Group::added() {
  if (open()) return ncclSuccess;
  std::vector<Batch> batches = std::exchange(content_.batches, {});
  for (const Batch& batch : batches) {
    if (Status status = check_self(batch); !status.ok()) {
      log::warn("%s", status.message().c_str());
      return fail(status);
    }
  }
  return launch_all(runtime_, std::move(batches));
}

ncclResult_t Group::fail(const Status& status) {
  // A call that NCCL must refuse makes it cancel its own part of the group. It comes first, since
  // its message would supersede ours.
  if (open()) forward(runtime_.nccl.ncclSend, nullptr, 0, ncclInt8, 0, nullptr, nullptr);
  const ncclResult_t result = runtime_.last_error.set(status);
  if (open()) content_.error = result;
  return result;
}

}  // namespace railyard::intercept
