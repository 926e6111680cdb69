// SPDX-License-Identifier: Apache-2.0
//
// One link: what is posted to it, the queue pairs that carry it, and the line beside them.
//
//            first post            connected             Welcome
//   kIdle ---------------> kDialing ---------> kGreeting -----------> kUp
//     |                                           | Yield              ^
//     | Hello of the peer                         v                    |
//     +----------------------> kAccepting <-- kExpecting               |
//                                   |              Ready               |
//                                   +----------------------------------+
//
// Its end: a side that closes, or hears the peer's Bye, sends what is under way, then its own Bye,
// and lets go of the queue pairs when it has seen all the writes that the peer's Bye counts. The
// side that did not close is then kIdle: the peer may come back. Nothing is deduced from the order
// in which line and queue pairs deliver.
//
// When a link fails its queue pairs are destroyed first: from then on no write of the peer can
// reach landing memory and no send reads staging memory. The peer learns it over the line and does
// the same.
//
// A link to the carrier itself has queue pairs that end where they begin, and no line.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/transport.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/home.h"
#include "transport/verbs/line.h"
#include "transport/verbs/queue_pair.h"

namespace railyard::verbs {

class Link {
 public:
  Link(Home& home, transport::LinkId id, const Endpoint& peer, std::string name);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  transport::LinkId id() const { return id_; }
  const Identity& peer() const { return peer_.identity; }
  bool down() const { return phase_ == Phase::kDown; }
  /// Nothing is left to be done; the owner may free it.
  bool gone() const { return gone_; }
  bool closed() const { return references_ == 0; }
  const Status& failure() const { return failure_; }

  void reopen() { ++references_; }
  /// One reference less; the last sends what is left, says goodbye and makes the link gone().
  void close();

  void post_cell(const transport::Cell& cell);
  void post_credit(uint32_t tag);
  /// Hands over what had no room before. True if anything moved.
  bool flush();

  /// Whether a Hello of the peer can be answered now; if not, it waits.
  bool may_accept() const;
  /// Of two carriers that dial each other, the one with the smaller identity wins.
  bool yields_to_peer() const { return peer_.identity < home_.self.identity; }
  bool dialling() const { return phase_ == Phase::kDialing || phase_ == Phase::kGreeting; }
  void accept(Line line, const Introduction& hello);
  /// The peer wrote to a link that is closed at this end, and for which there is no other.
  void refuse();

  /// The line is readable or writable.
  void on_line();
  void on_alarm(Clock::time_point now);
  void on_write_received();
  void on_send_done(size_t pair, uint64_t wr_id);
  void on_error(size_t pair, const ibv_wc& completion);
  void fail(Status why);

 private:
  enum class Phase : uint8_t { kIdle, kDialing, kGreeting, kExpecting, kAccepting, kUp, kDown };
  struct Work {
    transport::Cell cell;
    bool credit = false;
  };

  void post(const Work& work);
  /// False: no room now.
  bool write(const Work& work);
  void dial();
  void finish_dialling();
  Status make_pairs();
  Status connect_pairs(const Introduction& peer);
  Introduction introduce() const;
  void release_pairs();
  void set_deadline(int ms);

  void watch_line();
  void drop_line();
  void on_frame(const wire::Bytes& frame);
  void on_welcome(wire::Reader body);
  void on_line_lost(const Status& why);
  void come_up();

  bool to_itself() const { return peer_.identity == home_.self.identity; }
  void connect_to_itself();
  /// Whether the queue pairs are on their way out.
  bool ending() const { return closed() || bye_; }
  void end_if_done();
  /// Posts what makes unnoticed sends show; true when none is under way.
  bool all_sent();
  void become_idle();
  void set_leaving(bool leaving);
  void drop_queue();

  Home& home_;
  const transport::LinkId id_;
  Endpoint peer_;
  std::string name_;
  uint32_t references_ = 1;
  Phase phase_ = Phase::kIdle;
  bool gone_ = false;
  bool leaving_ = false;    ///< closed, and its Bye is not yet sent
  bool peer_left_ = false;  ///< the peer has closed its end and has not come back
  Status failure_;

  Line line_;
  std::optional<Clock::time_point> deadline_;
  std::deque<Work> queue_;

  std::vector<std::unique_ptr<QueuePair>> pairs_;
  size_t next_pair_ = 0;
  std::vector<NicRecord> peer_nics_;
  uint64_t landing_address_ = 0, landing_bytes_ = 0;
  uint64_t sent_ = 0, received_ = 0;  ///< writes on these queue pairs
  std::optional<uint64_t> bye_;       ///< writes the peer says it has sent
  bool bye_sent_ = false;
};

}  // namespace railyard::verbs
