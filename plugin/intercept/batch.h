// SPDX-License-Identifier: Apache-2.0
//
// The messages of one group on one communicator, collected until they can start, and on which
// streams NCCL has a part in it.
#pragma once

#include <memory>
#include <vector>

#include <nccl.h>

#include "comm/manager.h"
#include "exchange/engine.h"

namespace railyard::intercept {

struct Runtime;

struct Batch {
  ncclComm_t handle = nullptr;
  std::shared_ptr<comm::Communicator> communicator;
  exchange::Exchange exchange;
  std::vector<cudaStream_t> streams;  ///< last seen first: NCCL launches there, and so do we
  std::vector<cudaStream_t> outside;  ///< the same of NCCL's part

  /// True if the batch had other streams only.
  bool use_stream(cudaStream_t stream, bool by_nccl);
  /// All streams: NCCL makes each wait for all that the group does on its communicator.
  std::vector<cudaStream_t> all_streams() const;
};

/// Makes NCCL's part of a batch follow what is on its other streams and the exchanges before.
Status lead_in(Runtime& runtime, const Batch& batch);

/// Whether messages to oneself pair up; NCCL's rule, and all that can be checked before a launch.
Status check_self(const Batch& batch);

/// Starts every batch, in an order that all ranks share. A failure does not keep the others from
/// starting: their peers wait for them. Returns the first failure.
ncclResult_t launch_all(Runtime& runtime, std::vector<Batch> batches);

}  // namespace railyard::intercept
