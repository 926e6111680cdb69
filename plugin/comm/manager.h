// SPDX-License-Identifier: Apache-2.0
//
// The process-wide composition root: reads the configuration, marks unique ids, joins
// communicators and maps NCCL's handles to those railyard has taken over.
//
// The one Manager is made at the first call that needs it and never destroyed. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <nccl.h>

#include "base/status.h"
#include "exchange/engine.h"

namespace railyard::comm {

/// A communicator as railyard knows it: joined, and taken over if engine() is not null.
class Communicator;

/// One rank's join under way, in a thread of its own. Letting go of it waits for that thread.
class Joining {
 public:
  virtual ~Joining() = default;
  /// Waits for the outcome. Null: the communicator stays with NCCL and nothing of it is known.
  virtual std::shared_ptr<Communicator> wait() = 0;
  /// Without waiting: is wait() going to return at once?
  virtual bool done() const = 0;
};

class Communicator {
 public:
  /// What the interception has to remember of NCCL's side, and nobody else reads.
  struct Standing {
    std::atomic<bool> blocking{true};    ///< as configured; children inherit it
    std::atomic<bool> revoked{false};    ///< messages go to NCCL, which refuses them
    std::atomic<bool> suspended{false};  ///< as above
    std::atomic<bool> finalized{false};  ///< as above
    std::atomic<bool> leaving{false};    ///< a farewell is under way in the background
  };
  Standing standing;

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// Equal on all ranks of the communicator. Work of one group on several communicators starts in
  /// this order everywhere, whatever the order of the calls: else two ranks could wait for each
  /// other, each behind the other's communicator on one stream.
  virtual uint64_t order() const { return 0; }
  /// Null: joined (children may be taken over) but messages stay with NCCL.
  virtual exchange::Engine* engine() = 0;
  /// Says goodbye, writes statistics and frees; REQUIRES: no other thread uses the communicator.
  virtual void destroy() = 0;
  /// Ends waiting kernels and a destroy() under way at once, and fails all that comes later, but
  /// frees nothing: other threads may be using the communicator. Its statistics are written and its
  /// memory freed when the last of them lets go of it.
  virtual void stop() = 0;
};

class Manager {
 public:
  /// Of this process; a forked child has its own.
  static Manager& instance();

  /// False: RAILYARD_COMMS=off or the configuration is unusable (logged once); every call passes.
  virtual bool enabled() const = 0;

  /// Opens the meeting point of a fresh id and writes the mark. Leaves the id alone (and logs why)
  /// where NCCL_COMM_ID is set or the id's last 64 bytes are not zero.
  virtual void mark(ncclUniqueId* id) = 0;

  /// Starts joining the moment creation is called, from the thread that calls it. Of several ids,
  /// which come in the same order on all ranks, the first with a mark counts. Null: none has one.
  virtual std::shared_ptr<Joining> join(std::span<const ncclUniqueId> ids, int ranks, int rank) = 0;
  /// Same for ncclCommSplit; every rank of the parent calls it, `color` may be NCCL_SPLIT_NOCOLOR.
  /// Null: the parent was not joined.
  virtual std::shared_ptr<Joining> join_split(ncclComm_t parent, int color, int key) = 0;
  /// Same for ncclCommShrink; only ranks that are left call it. Null, too, if this one is not or
  /// the list makes no sense.
  virtual std::shared_ptr<Joining> join_shrink(ncclComm_t parent,
                                               std::span<const int> excluded) = 0;
  /// Same for ncclCommGrow at a rank of the parent, which keeps its rank among `ranks`. New ranks
  /// join() with the id.
  virtual std::shared_ptr<Joining> join_grow(ncclComm_t parent, int ranks) = 0;
  /// As mark(), for an id with which new ranks come to the next growth of `parent`.
  virtual void mark_growth(ncclComm_t parent, ncclUniqueId* id) = 0;

  /// Makes known a communicator that was made without railyard, of whose ranks all do the same. Its
  /// messages stay with NCCL; its children meet at the rendezvous. False: there is none.
  struct Stranger {
    uint64_t hash = 0;  ///< NCCL's
    int rank = 0, ranks = 0, device = 0;
  };
  virtual bool adopt(ncclComm_t handle, const Stranger& stranger) = 0;

  /// Ties the outcome of a join to NCCL's handle once NCCL has made it.
  virtual void bind(ncclComm_t handle, std::shared_ptr<Communicator> communicator) = 0;
  /// Null for communicators railyard has no part in.
  virtual std::shared_ptr<Communicator> find(ncclComm_t handle) = 0;
  /// As find(), and forgets the handle: call before NCCL may reuse it.
  virtual std::shared_ptr<Communicator> unbind(ncclComm_t handle) = 0;

 protected:
  virtual ~Manager() = default;
};

}  // namespace railyard::comm
