// SPDX-License-Identifier: Apache-2.0
//
// One thread's group, as NCCL has it: calls between the outermost start and end take effect
// together at that end.
//
// On communicators that railyard has taken over, point-to-point messages are kept here and never
// reach NCCL; all else goes to NCCL at once. Collectives are NCCL's, but NCCL puts all that is done
// on one communicator in one order, whatever the streams, so they are put among the exchanges. At
// the outermost end NCCL's part comes first (creations, then collectives), then joins are awaited,
// then the messages start. If any call of the group failed, on either side, nothing of it starts.
//
// Calls that NCCL would refuse are passed to it, so that callers get its own errors.
//
// Thread-bound: each thread has its own.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include <nccl.h>

#include "intercept/batch.h"
#include "intercept/farewell.h"
#include "intercept/runtime.h"

namespace railyard::intercept {

class Group {
 public:
  explicit Group(Runtime& runtime) : runtime_(runtime) {}

  ncclResult_t start();
  ncclResult_t end();
  ncclResult_t simulate_end(ncclSimInfo_t* info);

  ncclResult_t send(const void* buffer, size_t count, ncclDataType_t type, int peer,
                    ncclComm_t comm, cudaStream_t stream);
  ncclResult_t recv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream);
  ncclResult_t gather(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                      ncclComm_t comm, cudaStream_t stream);
  ncclResult_t scatter(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream);
  ncclResult_t all_to_all(const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream);

  ncclResult_t reduce(const void* from, void* to, size_t count, ncclDataType_t type,
                      ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t bcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                     cudaStream_t stream);
  ncclResult_t broadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream);
  ncclResult_t all_reduce(const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t reduce_scatter(const void* from, void* to, size_t count, ncclDataType_t type,
                              ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t all_gather(const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream);

  bool open() const { return depth_ > 0; }
  /// Remembers a failed call of the open group. Returns `result`.
  ncclResult_t note(ncclResult_t result);
  /// Settles a creation at the outermost end, or now if no group is open. Returns what to tell the
  /// caller.
  ncclResult_t add(Creation creation, ncclResult_t result);
  /// Says it at the outermost end, or now if no group is open.
  ncclResult_t add(Farewell farewell);
  /// Whether a non-blocking call on the communicator is still under way here.
  bool busy(ncclComm_t comm);
  /// Ends a call on a communicator that a non-blocking call has not done with. The group fails too.
  ncclResult_t refuse_busy();

 private:
  /// What is gathered until the outermost end.
  struct Content {
    std::vector<Batch> batches;      ///< first seen first
    std::vector<ncclComm_t> others;  ///< with calls that NCCL has
    std::vector<Creation> creations;
    std::vector<Farewell> farewells;
    ncclResult_t error = ncclSuccess;  ///< the last one of any call
  };

  template <typename RealEnd>
  ncclResult_t close(RealEnd real_end, bool simulated);
  /// A communicator whose messages are railyard's; null: NCCL is to do the call, or to refuse it.
  using Ours = std::shared_ptr<comm::Communicator>;
  bool failed(ncclComm_t comm);
  Ours taken_over(ncclComm_t comm);
  /// Null also if NCCL refuses the arguments; `memory` is what it looks at when told to check that.
  Ours taken_over(ncclComm_t comm, ncclDataType_t type, int peer,
                  std::initializer_list<const void*> memory);
  /// ok if messages may be added now.
  Status ready(const comm::Communicator& communicator);
  ncclResult_t message(bool is_send, void* buffer, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, cudaStream_t stream, const Ours& ours);
  /// Adds what a collective consists of; `fill` gets the exchange and the bytes of `count`
  /// elements.
  template <typename Fill>
  ncclResult_t collective(size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                          const Ours& ours, Fill fill);
  ncclResult_t grouped_all_to_all(const void* from, void* to, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream);
  /// Where messages on this stream, or NCCL's part on it, belong; kInvalidUsage if it cannot share
  /// a group with the other streams there.
  Result<Batch*> batch_of(ncclComm_t comm, const Ours& ours, cudaStream_t stream,
                          bool by_nccl = false);
  /// Makes a call on a communicator that is NCCL's.
  template <typename... Parameters, typename... Args>
  ncclResult_t pass(ncclComm_t comm, ncclResult_t (*real)(Parameters...), Args... args);
  /// NCCL returned `result` for a call on the communicator. Returns it.
  ncclResult_t passed(ncclComm_t comm, ncclResult_t result);
  /// Makes a collective of NCCL's, in its place among the messages of the communicator.
  template <typename... Parameters, typename... Args>
  ncclResult_t outside(ncclComm_t comm, cudaStream_t stream, ncclResult_t (*real)(Parameters...),
                       Args... args);
  /// After messages were added: outside a group they start now.
  ncclResult_t added();
  /// A failure that railyard found: the open group fails with it, NCCL's part too.
  ncclResult_t fail(const Status& status);
  void say_farewells(std::vector<Farewell> farewells);

  Runtime& runtime_;
  int depth_ = 0;
  Content content_;
};

}  // namespace railyard::intercept
