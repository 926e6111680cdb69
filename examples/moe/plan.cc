// SPDX-License-Identifier: Apache-2.0
// Turns counts into messages.
#include "plan.h"

#include <utility>

namespace moe {
namespace {

using Offsets = std::vector<Index>;

// First row of each (peer, expert) block where the buffer is ordered by peer, then expert.
Offsets offsets_by_peer(const std::int32_t* counts, int ranks, Index experts) {
  Offsets offsets;
  Index row = 0;
  for (Index i = 0; i < ranks * experts; ++i) {
    offsets.push_back(row);
    row += counts[i];
  }
  return offsets;
}

// The same where the buffer is ordered by expert, then peer.
Offsets offsets_by_expert(const std::int32_t* counts, int ranks, Index experts) {
  Offsets offsets(static_cast<std::size_t>(ranks * experts));
  Index row = 0;
  for (Index e = 0; e < experts; ++e) {
    for (Index r = 0; r < ranks; ++r) {
      offsets[static_cast<std::size_t>(r * experts + e)] = row;
      row += counts[r * experts + e];
    }
  }
  return offsets;
}

void append(std::vector<Message>& messages, int peer, const std::int32_t* counts,
            const Offsets& offsets, Index experts) {
  for (Index i = peer * experts; i < (peer + 1) * experts; ++i) {
    if (counts[i] != 0) messages.push_back({peer, offsets[static_cast<std::size_t>(i)], counts[i]});
  }
}

}  // namespace

ExchangePlan make_plan(const std::int32_t* sent, const std::int32_t* received, int rank, int ranks,
                       Index experts_per_rank) {
  const Offsets send_rows = offsets_by_peer(sent, ranks, experts_per_rank);
  const Offsets receive_rows = offsets_by_expert(received, ranks, experts_per_rank);
  ExchangePlan plan;
  for (int step = 0; step < ranks; ++step) {
    append(plan.dispatch.sends, (rank + step) % ranks, sent, send_rows, experts_per_rank);
    append(plan.dispatch.receives, (rank - step + ranks) % ranks, received, receive_rows,
           experts_per_rank);
  }
  plan.combine = {plan.dispatch.receives, plan.dispatch.sends};
  plan.rows_of_expert.assign(static_cast<std::size_t>(experts_per_rank), 0);
  for (Index r = 0; r < ranks; ++r) {
    for (Index e = 0; e < experts_per_rank; ++e) {
      plan.rows_of_expert[static_cast<std::size_t>(e)] += received[r * experts_per_rank + e];
    }
  }
  for (const Index rows : plan.rows_of_expert) plan.received_rows += rows;
  return plan;
}

}  // namespace moe
