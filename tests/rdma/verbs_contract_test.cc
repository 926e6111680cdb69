// SPDX-License-Identifier: Apache-2.0
//
// The verbs transport keeps the contract of all transports: over real RDMA verbs, with and without
// the flush that older GPUs need, and with several queue pairs per peer.
#include "transport_contract.h"
#include "verbs_kind.h"

namespace railyard::transport {
namespace {

std::unique_ptr<Transport> make_plain() { return verbs::make_next(); }

std::unique_ptr<Transport> make_flushing() {
  verbs::Options options;
  options.force_flush = true;
  return verbs::make_next(options);
}

std::unique_ptr<Transport> make_wide() {
  verbs::Options options;
  options.queue_pairs = 3;
  return verbs::make_next(options);
}

INSTANTIATE_TEST_SUITE_P(Verbs, TransportContract,
                         testing::Values(TransportKind{"plain", make_plain},
                                         TransportKind{"flushing", make_flushing},
                                         TransportKind{"wide", make_wide}),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace railyard::transport
