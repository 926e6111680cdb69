// SPDX-License-Identifier: Apache-2.0
#include "intercept/group.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/log.h"

namespace railyard::intercept {

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
  return close([this, info] { return forward(runtime_.nccl.ncclGroupSimulateEnd, info); }, true);
}

template <typename RealEnd>
ncclResult_t Group::close(RealEnd real_end, bool simulated) {
  if (depth_ != 1) {  // an inner end, or one without a start: NCCL knows what to say
    if (depth_ > 1) --depth_;
    return real_end();
  }
  // What can be found wrong is found before NCCL starts its part.
  for (const Batch& batch : content_.batches) {
    const Status status = check_self(batch);
    if (status.ok()) continue;
    log::warn("%s", status.message().c_str());
    fail(status);
  }
  Content content = std::exchange(content_, {});
  depth_ = 0;
  if (!simulated && content.error == ncclSuccess) {
    std::stable_sort(content.farewells.begin(), content.farewells.end(),
                     [](const Farewell& a, const Farewell& b) {
                       return a.communicator->order() < b.communicator->order();
                     });
    for (const Farewell& farewell : content.farewells) {
      const ncclResult_t said = say(farewell);
      if (said != ncclSuccess) content.error = said;
    }
  }

  ncclResult_t result = real_end();
  if (content.error != ncclSuccess) result = content.error;
  for (Creation& creation : content.creations) {
    runtime_.outstanding.settle(runtime_, std::move(creation),
                                simulated ? ncclInvalidUsage : result);
  }
  if (simulated || content.batches.empty()) return result;
  if (result == ncclSuccess) return launch_all(runtime_, std::move(content.batches));
  if (result == ncclInProgress) runtime_.outstanding.park(std::move(content.batches));
  return result;
}

ncclResult_t Group::send(const void* buffer, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream) {
  const auto communicator = taken_over(comm);
  if (communicator == nullptr || type_bytes(type) == 0 || peer < 0 ||
      peer >= communicator->ranks()) {
    return note(forward(runtime_.nccl.ncclSend, buffer, count, type, peer, comm, stream));
  }
  return message(true, const_cast<void*>(buffer), count, type, peer, comm, stream, communicator);
}

ncclResult_t Group::recv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream) {
  const auto communicator = taken_over(comm);
  if (communicator == nullptr || type_bytes(type) == 0 || peer < 0 ||
      peer >= communicator->ranks()) {
    return note(forward(runtime_.nccl.ncclRecv, buffer, count, type, peer, comm, stream));
  }
  return message(false, buffer, count, type, peer, comm, stream, communicator);
}

ncclResult_t Group::message(bool is_send, void* buffer, size_t count, ncclDataType_t type, int peer,
                            ncclComm_t comm, cudaStream_t stream,
                            const std::shared_ptr<comm::Communicator>& communicator) {
  if (Status status = ready(comm, *communicator); !status.ok()) return fail(status);
  const auto bytes = checked_mul(count, type_bytes(type));
  if (!bytes.has_value()) {
    return fail(Status::error(Code::kInvalidArgument,
                              "a message of %zu elements is larger than memory can be", count));
  }
  const Result<Batch*> batch = batch_of(comm, communicator, stream);
  if (!batch.ok()) return fail(batch.status());
  exchange::Exchange& exchange = (*batch)->exchange;
  (is_send ? exchange.sends : exchange.recvs).push_back({peer, buffer, *bytes});
  return added();
}

ncclResult_t Group::all_to_all(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream) {
  const auto communicator = taken_over(comm);
  if (communicator == nullptr || type_bytes(type) == 0) {
    return runtime_.nccl.ncclAlltoAll != nullptr
               ? note(forward(runtime_.nccl.ncclAlltoAll, from, to, count, type, comm, stream))
               : grouped_all_to_all(from, to, count, type, comm, stream);
  }
  if (count == 0) return ncclSuccess;  // NCCL drops collectives of no elements
  if (Status status = ready(comm, *communicator); !status.ok()) return fail(status);
  const auto ranks = static_cast<uint64_t>(communicator->ranks());
  const auto block = checked_mul(count, type_bytes(type));
  if (!block.has_value() || !checked_mul(*block, ranks).has_value()) {
    return fail(Status::error(Code::kInvalidArgument,
                              "an all-to-all of %zu elements per rank is larger than memory can be",
                              count));
  }
  const Result<Batch*> batch = batch_of(comm, communicator, stream);
  if (!batch.ok()) return fail(batch.status());
  exchange::Exchange& exchange = (*batch)->exchange;
  auto* const send = static_cast<std::byte*>(const_cast<void*>(from));
  auto* const recv = static_cast<std::byte*>(to);
  for (uint64_t peer = 0; peer < ranks; ++peer) {
    exchange.sends.push_back({static_cast<int>(peer), send + peer * *block, *block});
    exchange.recvs.push_back({static_cast<int>(peer), recv + peer * *block, *block});
  }
  return added();
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
  return note(result != ncclSuccess ? result : ended);
}

ncclResult_t Group::note(ncclResult_t result) {
  if (open() && result != ncclSuccess && result != ncclInProgress) content_.error = result;
  return result;
}

void Group::add(Creation creation, ncclResult_t result) {
  note(result);
  if (open() && (result == ncclSuccess || result == ncclInProgress)) {
    content_.creations.push_back(std::move(creation));
  } else {
    runtime_.outstanding.settle(runtime_, std::move(creation), result);
  }
}

ncclResult_t Group::add(Farewell farewell) {
  if (!open()) return say(farewell);
  content_.farewells.push_back(std::move(farewell));
  return ncclSuccess;
}

ncclResult_t Group::say(const Farewell& farewell) {
  // The handle stays known meanwhile: another thread may have to abort what waits here.
  if (farewell.destroy) {
    farewell.communicator->destroy();
    runtime_.manager.unbind(farewell.handle);
    return ncclSuccess;
  }
  exchange::Engine* const engine = farewell.communicator->engine();
  if (engine == nullptr) return ncclSuccess;
  return runtime_.last_error.set(runtime_.engines.farewell(*engine));
}

std::shared_ptr<comm::Communicator> Group::taken_over(ncclComm_t comm) {
  if (comm == nullptr) return nullptr;
  auto communicator = runtime_.manager.find(comm);
  if (communicator != nullptr && communicator->engine() == nullptr) communicator = nullptr;
  return communicator;
}

Status Group::ready(ncclComm_t comm, const comm::Communicator& communicator) {
  if (runtime_.outstanding.busy(comm)) {
    return Status::error(Code::kInvalidArgument,
                         "the communicator is still busy with a non-blocking call; poll "
                         "ncclCommGetAsyncError until it is not ncclInProgress");
  }
  return runtime_.engines.error(*const_cast<comm::Communicator&>(communicator).engine());
}

Result<Batch*> Group::batch_of(ncclComm_t comm,
                               const std::shared_ptr<comm::Communicator>& communicator,
                               cudaStream_t stream) {
  auto batch = std::find_if(content_.batches.begin(), content_.batches.end(),
                            [comm](const Batch& b) { return b.handle == comm; });
  if (batch == content_.batches.end()) {
    content_.batches.push_back({comm, communicator, {}, {}});
    batch = content_.batches.end() - 1;
  }
  if (batch->use_stream(stream)) {
    const Status status = runtime_.engines.check_streams(*communicator->engine(), batch->streams);
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
