// SPDX-License-Identifier: Apache-2.0
#include "intercept/batch.h"

#include <algorithm>

#include "intercept/runtime.h"

namespace railyard::intercept {

namespace {

bool has(const std::vector<cudaStream_t>& list, cudaStream_t stream) {
  return std::find(list.begin(), list.end(), stream) != list.end();
}

std::vector<cudaStream_t> joined(std::vector<cudaStream_t> first,
                                 const std::vector<cudaStream_t>& more) {
  for (const cudaStream_t stream : more) {
    if (!has(first, stream)) first.push_back(stream);
  }
  return first;
}

Status launch(Runtime& runtime, const Batch& batch) {
  exchange::Engine* const engine = batch.communicator->engine();
  if (engine == nullptr) {
    return Status::error(Code::kInvalidUsage, "messages on a communicator that has been ended");
  }
  return batch.streams.empty()
             ? runtime.engines.end_outside(*engine, batch.outside)
             : runtime.engines.launch(*engine, batch.exchange, batch.all_streams());
}

}  // namespace

bool Batch::use_stream(cudaStream_t stream, bool by_nccl) {
  const bool known = has(streams, stream) || has(outside, stream);
  std::vector<cudaStream_t>& list = by_nccl ? outside : streams;
  if (!has(list, stream)) list.insert(list.begin(), stream);
  return !known && streams.size() + outside.size() > 1;
}

std::vector<cudaStream_t> Batch::all_streams() const { return joined(streams, outside); }

Status lead_in(Runtime& runtime, const Batch& batch) {
  exchange::Engine* const engine = batch.communicator->engine();
  if (engine == nullptr || batch.outside.empty()) return {};
  return runtime.engines.begin_outside(*engine, joined(batch.outside, batch.streams));
}

Status check_self(const Batch& batch) {
  const int self = batch.communicator->rank();
  std::vector<uint64_t> sent, received;
  for (const exchange::Message& m : batch.exchange.sends) {
    if (m.peer == self) sent.push_back(m.bytes);
  }
  for (const exchange::Message& m : batch.exchange.recvs) {
    if (m.peer == self) received.push_back(m.bytes);
  }
  if (sent == received) return {};
  if (sent.size() != received.size()) {
    return Status::error(Code::kInvalidUsage,
                         "rank %d: %zu sends and %zu receives to and from oneself in one group; "
                         "each send to oneself needs its receive in the same group",
                         self, sent.size(), received.size());
  }
  const auto [a, b] = std::mismatch(sent.begin(), sent.end(), received.begin());
  return Status::error(Code::kInvalidUsage, "rank %d sends %llu bytes to itself but receives %llu",
                       self, static_cast<unsigned long long>(*a),
                       static_cast<unsigned long long>(*b));
}

ncclResult_t launch_all(Runtime& runtime, std::vector<Batch> batches) {
  std::stable_sort(batches.begin(), batches.end(), [](const Batch& a, const Batch& b) {
    return a.communicator->order() < b.communicator->order();
  });
  ncclResult_t first = ncclSuccess;
  for (const Batch& batch : batches) {
    const ncclResult_t result = runtime.last_error.set(launch(runtime, batch));
    if (first == ncclSuccess) first = result;
  }
  return first;
}

}  // namespace railyard::intercept
