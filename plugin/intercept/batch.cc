// SPDX-License-Identifier: Apache-2.0
#include "intercept/batch.h"

#include <algorithm>

#include "intercept/runtime.h"

namespace railyard::intercept {

bool Batch::use_stream(cudaStream_t stream) {
  if (std::find(streams.begin(), streams.end(), stream) != streams.end()) return false;
  streams.insert(streams.begin(), stream);
  return streams.size() > 1;
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
    exchange::Engine* const engine = batch.communicator->engine();
    const Status status =
        engine != nullptr
            ? runtime.engines.launch(*engine, batch.exchange, batch.streams)
            : Status::error(Code::kInvalidUsage, "messages on a communicator that has been ended");
    const ncclResult_t result = runtime.last_error.set(status);
    if (first == ncclSuccess) first = result;
  }
  return first;
}

}  // namespace railyard::intercept
