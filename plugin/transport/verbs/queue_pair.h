// SPDX-License-Identifier: Apache-2.0
//
// One reliable connection between two NICs: from creation, through the states, to destruction.
//
//   create (INIT)  ->  connect (RTR, RTS)  ->  write …  ->  gone (ERR, destroyed)
//
// Signals a send only now and then: completions come in order, so one accounts for all before it.
// A failed send always completes, signalled or not. Thread-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/nic.h"

namespace railyard::verbs {

class QueuePair {
 public:
  /// `nic` must outlive it.
  static Result<std::unique_ptr<QueuePair>> create(Nic& nic);
  /// When this returns the NIC neither writes to nor reads from memory on its account any more.
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  Nic& nic() const { return nic_; }
  uint32_t number() const { return pair_->qp_num; }
  /// What the peer needs; before connect() what this NIC can do, after it what both can.
  QueuePairRecord record() const;

  /// Ready to receive and to send. The peer must have done the same before the first send.
  Status connect(const NicRecord& peer_nic, const QueuePairRecord& peer);

  bool has_room() const { return under_way_ < nic_.sends_per_queue_pair() && nic_.may_send(); }
  uint32_t under_way() const { return under_way_; }
  /// Whether sends are under way whose completion would go unnoticed.
  bool unsignaled() const { return since_signal_ > 0; }
  /// REQUIRES: has_room(). Fills in what concerns signalling.
  Status post(ibv_send_wr& request, bool signal = false);
  /// To be called with wr_id of each good completion of a send.
  void completed(uint64_t wr_id);

 private:
  explicit QueuePair(Nic& nic) : nic_(nic) {}
  Status to_init();
  Status to_ready_to_receive(const NicRecord& peer_nic, const QueuePairRecord& peer);
  Status to_ready_to_send();

  Nic& nic_;
  QueuePairHandle pair_;
  uint32_t first_psn_ = 0;
  uint32_t under_way_ = 0, since_signal_ = 0;
};

}  // namespace railyard::verbs
