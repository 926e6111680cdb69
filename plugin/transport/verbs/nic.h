// SPDX-License-Identifier: Apache-2.0
//
// One port of one RDMA device as a carrier uses it: its queues and its registered memory.
//
// All queue pairs of a NIC share one receive queue and one completion queue, which cannot overrun:
//
//   - a receive is posted again only after its completion was taken, so at most kReceives
//     completions of receives exist. Should more writes come in than receives are posted, the NIC
//     makes their senders wait and try again without end (rnr_retry 7): nothing is lost.
//   - a send is posted only while fewer than kSends are under way on all queue pairs together;
//     whether signalled or not, each yields at most one completion.
//
// The completion queue has room for both, and for what destroyed queue pairs left behind.
//
// Thread-bound to the carrier's thread, except open() and expose().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/transport.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/options.h"
#include "transport/verbs/ports.h"

namespace railyard::verbs {

class Nic {
 public:
  static Result<std::unique_ptr<Nic>> open(const Library& library, const Options& options,
                                           const Port& port);
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  /// Makes the queues and registers the memory.
  Status expose(const transport::Area& staging, const transport::Area& landing);

  const Library& library() const { return library_; }
  const Options& options() const { return options_; }
  const Port& port() const { return port_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  ibv_cq* cq() const { return cq_.get(); }
  ibv_srq* srq() const { return srq_.get(); }
  bool ethernet() const { return ethernet_; }
  int gid_index() const { return gid_index_; }
  uint32_t sends_per_queue_pair() const { return sends_per_queue_pair_; }
  uint32_t staging_key() const { return staging_->lkey; }
  uint32_t landing_local_key() const { return landing_->lkey; }
  /// What peers need to know, and how messages call this NIC.
  const NicRecord& record() const { return record_; }
  /// "mlx5_0 port 1 (RoCE v2, GID 3 ::ffff:10.0.0.1, MTU 4096)"
  std::string describe() const;

  /// Fills `completions` from its start; 0: there are none, negative: the queue is broken.
  int poll(std::span<ibv_wc> completions);
  /// One receive was used up.
  void receive_used();

  /// The next completion makes channel_fd() readable.
  Status arm();
  bool armed() const { return armed_; }
  /// Takes what made channel_fd() readable; arm() again afterwards.
  void take_events();
  int channel_fd() const { return channel_->fd; }
  int async_fd() const { return context_->async_fd; }

  /// Accounts of sends, all queue pairs together.
  bool may_send() const { return sends_ < send_limit_; }
  /// So many are under way that each should be signalled, lest room be found too late.
  bool crowded() const { return sends_ >= send_limit_ / 2; }
  void sent() { ++sends_; }
  void send_done(uint32_t sends) { sends_ -= sends; }
  /// Sends whose queue pair is gone; their completions may still lie in the queue.
  void abandon(uint32_t sends) { abandoned_ += sends; }

 private:
  Nic(const Library& library, const Options& options, const Port& port)
      : library_(library), options_(options), port_(port) {}
  Status inspect();
  Status choose_gid(const ibv_port_attr& state);
  Status make_queues();
  Status post_receives(uint32_t count);

  const Library& library_;
  const Options& options_;
  Port port_;
  Context context_;
  ProtectionDomain pd_;
  MemoryRegion staging_, landing_;
  CompletionChannel channel_;
  CompletionQueue cq_;
  SharedReceiveQueue srq_;

  NicRecord record_;
  int gid_index_ = 0;
  int roce_version_ = 0;
  bool ethernet_ = false;
  bool armed_ = false;
  uint32_t receives_ = 0, receives_used_ = 0;
  uint32_t sends_per_queue_pair_ = 0;
  uint32_t send_limit_ = 0, sends_ = 0, abandoned_ = 0;
};

}  // namespace railyard::verbs
