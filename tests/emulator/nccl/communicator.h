// SPDX-License-Identifier: Apache-2.0
//
// One rank of a communicator: creation, launching of work into streams, and the ways it ends.
//
// Work runs as a host function in the caller's stream, in stream order; the communicator's own
// works follow each other whatever their streams. A communicator is used by one thread at a time,
// but abort(), async_error() and running work may come from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap.h"
#include "collective.h"
#include "device.h"
#include "fabric.h"
#include "registrations.h"
#include "task.h"
#include "tuner.h"

namespace railyard::emulator {

class Communicator;

/// All tasks of a group on one communicator.
struct Batch {
  std::shared_ptr<Communicator> communicator;
  std::vector<CUstream> streams;  ///< in the order in which they were first seen
  uint64_t capture = 0;           ///< id of the capture of all of them; 0: none is captured
  std::vector<Task> collectives;
  std::vector<Task> points;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// As its creator wished: calls that take time return at once and go on in a thread.
  void set_blocking(bool blocking) { blocking_ = blocking; }
  bool blocking() const { return blocking_; }
  /// By which it asks about itself.
  void set_handle(ncclComm_t handle) { handle_ = handle; }
  /// How calls on it went that had returned before; ncclInProgress: they go on.
  void set_state(ncclResult_t state) { state_ = state; }

  ncclResult_t set_device(int device) { return device_.open(device); }
  void set_rank(int rank, int ranks) {
    rank_ = rank;
    ranks_ = ranks;
  }
  /// Joins the other ranks of `id`. REQUIRES: set_device() and set_rank().
  ncclResult_t create(const ncclUniqueId& id);
  /// What a rank wants of a child.
  struct Place {
    int color = 0;  ///< NCCL_SPLIT_NOCOLOR: it will be in none
    int order = 0;
    bool blocking = true;
  };
  /// Makes children of `parent` together with the other `members`, ranks of it in rising order.
  /// `*child` stays null for NCCL_SPLIT_NOCOLOR.
  static ncclResult_t derive(Communicator& parent, const std::vector<int>& members,
                             const Place& place, std::shared_ptr<Communicator>* child);

  /// All ranks together: `*id` becomes that of the first that has one.
  ncclResult_t share_id(bool known, ncclUniqueId* id);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_.number(); }
  bool may_use(const void* memory) const { return device_.may_use(memory); }
  Registrations& registrations() { return registrations_; }
  /// Alike on all ranks.
  uint64_t hash() const;
  /// ncclSuccess, ncclInProgress, or why the communicator is of no more use.
  ncclResult_t state() const;
  /// state() by way of ncclCommGetAsyncError, which as in the real NCCL others may answer.
  ncclResult_t ask_state(ncclResult_t* state) const;
  /// ncclSuccess if nothing is in progress and nothing has failed.
  ncclResult_t check_ready() const;
  /// ncclSuccess if operations may be enqueued, else what the call is to return.
  ncclResult_t check_usable() const;

  ncclResult_t add_operation(const Operation& operation, ncclDataType_t type, ncclRedOp_t* op);
  ncclResult_t remove_operation(ncclRedOp_t op);
  /// What `op` means for data of `type`.
  ncclResult_t find_operation(ncclRedOp_t op, ncclDataType_t type, Operation* operation) const;

  /// ncclInvalidUsage unless all streams of a batch are captured by one graph, or none is.
  ncclResult_t add_stream(CUstream stream, Batch* batch) const;
  ncclResult_t ask_tuner(const Batch& batch) const;
  /// Refuses what can be seen to be wrong before anything is launched.
  ncclResult_t check_batch(const Batch& batch) const;
  ncclResult_t launch(Batch batch);

  /// Between the two whatever others do takes its course.
  ncclResult_t begin_finalize();
  ncclResult_t end_finalize();
  ncclResult_t destroy();
  ncclResult_t abort();
  /// Between the two what is under way ends; then the communicator may still be destroyed, split
  /// or shrunk.
  ncclResult_t begin_revoke();
  ncclResult_t end_revoke();
  /// Between the two no operations are accepted.
  ncclResult_t suspend();
  ncclResult_t resume();
  bool suspended() const { return suspended_; }
  /// Ends what is under way and goes on as if it had never been.
  void interrupt();

 private:
  struct Work;

  ncclResult_t join(std::vector<Record> table, int rank);
  ncclResult_t check_table(const std::vector<Record>& table) const;
  ncclResult_t settle();
  ncclResult_t gather(const std::vector<int>& members, const void* own, uint64_t bytes, void* all);
  static void run_in_stream(void* work);
  static void drop_captured(void* work);
  ncclResult_t hand_to_graph(CUgraph graph, Work* work);
  ncclResult_t execute(const Work& work);
  void finish_work();
  bool enter();
  void leave();
  ncclResult_t order_before(const Batch& batch, uint64_t capture);
  ncclResult_t order_after(const Batch& batch, uint64_t capture);
  void give_up(ncclResult_t reason);
  void wait_until_idle();
  void wait_for_graphs();
  void close();
  void write_statistics();

  Device device_;
  Fabric fabric_;
  Tuner tuner_;
  Registrations registrations_;
  int rank_ = -1;
  int ranks_ = 0;
  UniqueFd cancel_;                                 ///< readable once aborted
  std::atomic<bool> aborted_{false};                ///< work gives up
  std::atomic<bool> ended_{false};                  ///< and so do set-ups of children
  std::atomic<ncclResult_t> state_{ncclSuccess};    ///< of calls
  std::atomic<ncclResult_t> failure_{ncclSuccess};  ///< of creation or work; the first one stays
  ncclComm_t handle_ = nullptr;
  bool finalized_ = false;
  bool revoked_ = false;
  bool suspended_ = false;
  bool blocking_ = true;

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  bool closed_ = false;
  bool joined_ = false;
  int inside_ = 0;       ///< threads that use the fabric
  int outstanding_ = 0;  ///< works launched and not done
  int graphs_ = 0;       ///< works that graphs hold

  std::mutex kernel_;  ///< held by the work that runs; guards traffic_
  Traffic traffic_;
  std::mutex control_;  ///< held by whoever uses the control channel

  CUstream last_stream_ = nullptr;
  bool launched_ = false;
  CUevent last_ = nullptr;  ///< end of the last work, by a graph or not
  CUevent fork_ = nullptr;
  CUevent in_capture_ = nullptr;  ///< end of the last work in the capture `capture_`
  uint64_t capture_ = 0;

  struct NamedOperation {
    Operation operation;
    ncclDataType_t type;
  };
  std::map<int, NamedOperation> operations_;
  int next_operation_ = ncclNumOps;
};

}  // namespace railyard::emulator
