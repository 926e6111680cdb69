// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/link.h"

#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "transport/verbs/failure.h"
#include "transport/verbs/registration.h"

namespace railyard::verbs {
namespace {

using transport::Cell;

constexpr int kLingerMs = 5000;  ///< for the last words of a closed link
constexpr uint32_t kCreditBit = 1U << 31;

}  // namespace

Link::Link(Home& home, transport::LinkId id, const Endpoint& peer, std::string name)
    : home_(home), id_(id), peer_(peer), name_(std::move(name)) {}

Link::~Link() {
  drop_queue();
  // A goodbye posted a moment ago still goes out if the socket takes it.
  if (line_.open()) line_.flush();
  drop_line();
  release_pairs();
  set_leaving(false);
}

// ---- posting ------------------------------------------------------------------------------------

void Link::post_cell(const Cell& cell) {
  if (cell.tag > transport::kMaxTag || cell.bytes > home_.staging.bytes ||
      cell.staging_offset > home_.staging.bytes - cell.bytes)
    return fail(Status::error(Code::kInternal,
                              "a cell for %s lies outside staging memory; please report this",
                              name_.c_str()));
  post({cell, false});
}

void Link::post_credit(uint32_t tag) {
  // A credit answers a cell; once the peer has left, nobody waits for it.
  if (peer_left_ && phase_ == Phase::kIdle) return;
  Work work;
  work.cell.tag = tag;
  work.credit = true;
  post(work);
}

void Link::post(const Work& work) {
  if (phase_ == Phase::kDown || closed()) return;
  if (phase_ == Phase::kUp && !ending() && queue_.empty() && write(work)) return;
  if (phase_ == Phase::kDown) return;  // by write()
  queue_.push_back(work);
  ++home_.unsent;
  if (phase_ == Phase::kIdle) dial();
}

bool Link::flush() {
  bool moved = false;
  while (phase_ == Phase::kUp && !bye_ && !queue_.empty()) {
    if (!write(queue_.front())) break;
    queue_.pop_front();
    --home_.unsent;
    moved = true;
  }
  if (ending()) end_if_done();
  return moved;
}

bool Link::write(const Work& work) {
  for (size_t tried = 0; tried < pairs_.size(); ++tried) {
    QueuePair& pair = *pairs_[next_pair_];
    const NicRecord& peer_nic = peer_nics_[next_pair_ % peer_nics_.size()];
    next_pair_ = (next_pair_ + 1) % pairs_.size();
    if (!pair.has_room()) continue;
    ibv_send_wr request{};
    ibv_sge memory{};
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.wr.rdma.rkey = peer_nic.landing_key;
    request.wr.rdma.remote_addr = landing_address_;
    request.imm_data = htonl(work.cell.tag | (work.credit ? kCreditBit : 0));
    if (!work.credit) {
      const Cell& cell = work.cell;
      if (cell.bytes > landing_bytes_ || cell.landing_offset > landing_bytes_ - cell.bytes) {
        fail(Status::error(Code::kInternal,
                           "a cell for %s lies outside its landing memory; please report this",
                           name_.c_str()));
        return false;
      }
      request.wr.rdma.remote_addr += cell.landing_offset;
      memory.addr = address_of(home_.staging) + cell.staging_offset;
      memory.length = cell.bytes;
      memory.lkey = pair.nic().staging_key();
      request.sg_list = &memory;
      request.num_sge = 1;
    }
    if (Status status = pair.post(request); !status.ok()) {
      fail(status);
      return false;
    }
    ++sent_;
    if (work.credit) {
      ++home_.counters.credits_sent;
    } else {
      ++home_.counters.cells_sent;
      home_.counters.cell_bytes_sent += work.cell.bytes;
    }
    return true;
  }
  return false;
}

// ---- connecting ---------------------------------------------------------------------------------

void Link::set_deadline(int ms) {
  deadline_ = Clock::now() + std::chrono::milliseconds(ms);
  home_.waiter->wake_at(*deadline_);
}

Status Link::make_pairs() {
  const size_t wanted = queue_pairs_between(home_.self, peer_);
  while (pairs_.size() < wanted) {
    const size_t nic = pairs_.size() % home_.nics.size();
    Result<std::unique_ptr<QueuePair>> pair = QueuePair::create(*home_.nics[nic]);
    if (!pair.ok()) return pair.status();
    home_.routes[nic][(*pair)->number()] = {this, pairs_.size()};
    pairs_.push_back(pair.take());
  }
  return Status();
}

void Link::release_pairs() {
  for (size_t i = 0; i < pairs_.size(); ++i)
    home_.routes[i % home_.nics.size()].erase(pairs_[i]->number());
  pairs_.clear();
  next_pair_ = 0;
  sent_ = received_ = 0;
  bye_.reset();
  bye_sent_ = false;
}

Introduction Link::introduce() const {
  Introduction self;
  self.peer_key = peer_.key;
  self.identity = home_.self.identity;
  self.landing_address = address_of(home_.landing);
  self.landing_bytes = home_.landing.bytes;
  for (const auto& nic : home_.nics) self.nics.push_back(nic->record());
  for (const auto& pair : pairs_) self.queue_pairs.push_back(pair->record());
  return self;
}

Status Link::connect_pairs(const Introduction& peer) {
  if (peer.queue_pairs.size() != pairs_.size())
    return Status::error(Code::kRemoteError,
                         "%s offers %zu queue pairs where %zu are due: run the same railyard and "
                         "the same RAILYARD_QPS everywhere",
                         name_.c_str(), peer.queue_pairs.size(), pairs_.size());
  peer_nics_ = peer.nics;
  landing_address_ = peer.landing_address;
  landing_bytes_ = peer.landing_bytes;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const Status status =
        pairs_[i]->connect(peer_nics_[i % peer_nics_.size()], peer.queue_pairs[i]);
    if (!status.ok())
      return Status::error(status.code(), "no RDMA connection to %s: %s", name_.c_str(),
                           status.message().c_str());
  }
  return Status();
}

void Link::dial() {
  if (Status status = make_pairs(); !status.ok()) return fail(status);
  if (to_itself()) return connect_to_itself();
  Result<UniqueFd> fd = net::start_connect(peer_.socket);
  if (!fd.ok()) return fail(unreachable(name_, fd.status()));
  line_ = Line(fd.take());
  phase_ = Phase::kDialing;
  set_deadline(closed() ? kLingerMs : home_.options.connect_timeout_ms);
  const Status watched =
      home_.waiter->watch(line_.fd(), EPOLLOUT, Watch::kLink, static_cast<uint32_t>(id_));
  if (!watched.ok()) fail(watched);
}

void Link::connect_to_itself() {
  if (Status status = connect_pairs(introduce()); !status.ok()) return fail(status);
  come_up();
}

void Link::finish_dialling() {
  if (Status status = net::connect_outcome(line_.fd(), peer_.socket); !status.ok())
    return fail(unreachable(name_, status));
  phase_ = Phase::kGreeting;
  // The peer may take its time to open the link; only a closed link does not wait for that.
  if (!closed()) deadline_.reset();
  line_.send(introduce().encode(Frame::kHello));
  watch_line();
}

bool Link::may_accept() const {
  if (gone_) return false;
  return phase_ == Phase::kIdle || phase_ == Phase::kExpecting || (dialling() && yields_to_peer());
}

void Link::accept(Line line, const Introduction& hello) {
  drop_line();
  line_ = std::move(line);
  phase_ = Phase::kAccepting;
  if (!closed()) deadline_.reset();
  home_.waiter->change(line_.fd(), EPOLLIN, Watch::kLink, static_cast<uint32_t>(id_));
  Status status = make_pairs();
  if (status.ok()) status = connect_pairs(hello);
  if (!status.ok()) return fail(status);
  line_.send(introduce().encode(Frame::kWelcome));
  watch_line();
}

void Link::on_welcome(wire::Reader body) {
  const auto welcome = Introduction::decode(body);
  if (!welcome || !net::equal_secrets(welcome->peer_key, home_.self.key) ||
      welcome->identity != peer_.identity)
    return fail(unreachable(name_, Status(Code::kRemoteError, "its answer is not valid")));
  if (Status status = connect_pairs(*welcome); !status.ok()) return fail(status);
  line_.send(wire::Bytes{std::byte{static_cast<uint8_t>(Frame::kReady)}});
  come_up();
}

void Link::come_up() {
  phase_ = Phase::kUp;
  peer_left_ = false;
  if (!closed()) deadline_.reset();
  log::trace("verbs: %s connected by %zu queue pairs, the first is 0x%x", name_.c_str(),
             pairs_.size(), pairs_[0]->number());
  flush();
}

// ---- the line -----------------------------------------------------------------------------------

void Link::watch_line() {
  if (!line_.open()) return;
  home_.waiter->change(line_.fd(), line_.wants_to_write() ? EPOLLIN | EPOLLOUT : EPOLLIN,
                       Watch::kLink, static_cast<uint32_t>(id_));
}

void Link::drop_line() {
  if (!line_.open()) return;
  home_.waiter->forget(line_.fd());
  line_.close();
}

void Link::on_line() {
  if (!line_.open()) return;
  if (phase_ == Phase::kDialing) return finish_dialling();
  line_.flush();
  while (line_.open()) {
    Result<std::optional<wire::Bytes>> frame = line_.receive();
    if (!frame.ok()) return on_line_lost(frame.status());
    if (!*frame) break;
    on_frame(**frame);
  }
  watch_line();
}

void Link::on_frame(const wire::Bytes& frame) {
  wire::Reader in(frame);
  switch (static_cast<Frame>(in.u8())) {
    case Frame::kWelcome:
      if (phase_ == Phase::kGreeting) return on_welcome(in);
      break;
    case Frame::kReady:
      if (phase_ == Phase::kAccepting) return come_up();
      break;
    case Frame::kYield:
      if (phase_ != Phase::kGreeting) break;
      drop_line();
      phase_ = Phase::kExpecting;
      return set_deadline(home_.options.connect_timeout_ms);
    case Frame::kBye: {
      const uint64_t writes = in.u64();
      if (phase_ != Phase::kUp) break;
      bye_ = writes;
      return end_if_done();
    }
    case Frame::kBroken: {
      const std::string why = in.text();
      return fail(
          Status::error(Code::kRemoteError, "%s gave the link up: %s", name_.c_str(), why.c_str()));
    }
    case Frame::kHello:
      break;
  }
  fail(Status::error(Code::kRemoteError, "%s sent what makes no sense at this moment",
                     name_.c_str()));
}

void Link::on_line_lost(const Status& why) {
  switch (phase_) {
    case Phase::kAccepting:
      // The peer closed its link, or died, before it used the connection.
      return become_idle();
    case Phase::kDialing:
    case Phase::kGreeting:
      return fail(unreachable(name_, why));
    default:
      if (!bye_ && !bye_sent_) return fail(lost(name_, why));
      // It left in good order; its last writes may still have to be seen.
      drop_line();
      if (!bye_) gone_ = true;
      return end_if_done();
  }
}

void Link::on_alarm(Clock::time_point now) {
  if (!deadline_) return;
  if (now < *deadline_) return home_.waiter->wake_at(*deadline_);
  deadline_.reset();
  if (closed()) {
    log::trace("verbs: gave up saying goodbye to %s", name_.c_str());
    gone_ = true;
  } else {
    fail(unreachable(name_, Status::error(Code::kRemoteError, "no answer within %d s",
                                          home_.options.connect_timeout_ms / 1000)));
  }
}

// ---- the end ------------------------------------------------------------------------------------

void Link::close() {
  if (references_ == 0 || --references_ > 0) return;
  const bool unused = phase_ != Phase::kUp && queue_.empty();
  if (unused || phase_ == Phase::kDown) {
    gone_ = true;
    return;
  }
  set_leaving(true);
  set_deadline(kLingerMs);
  end_if_done();
}

void Link::refuse() {
  line_.send(encode_text(Frame::kBroken, "the link is closed at this end"));
  gone_ = true;
}

void Link::set_leaving(bool leaving) {
  if (leaving == leaving_) return;
  leaving_ = leaving;
  home_.leaving += leaving ? 1 : -1;
}

bool Link::all_sent() {
  bool done = true;
  for (const auto& pair : pairs_) {
    if (pair->under_way() == 0) continue;
    done = false;
    if (!pair->unsignaled() || !pair->has_room()) continue;
    ibv_send_wr request{};  // of no bytes: only its completion matters
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = landing_address_;
    request.wr.rdma.rkey = peer_nics_[0].landing_key;
    if (Status status = pair->post(request, true); !status.ok()) {
      fail(status);
      return false;
    }
  }
  return done;
}

void Link::end_if_done() {
  if (phase_ != Phase::kUp || gone_) return;
  // A peer that has left takes nothing more; what is queued waits for it to come back.
  if (!bye_ && !queue_.empty()) return;
  if (!all_sent() || phase_ != Phase::kUp) return;
  if (to_itself()) {
    gone_ = true;
  } else if (!std::exchange(bye_sent_, true)) {
    line_.send(encode_bye(sent_));
    watch_line();
  }
  set_leaving(false);
  if (!bye_ || received_ < *bye_) return;
  peer_left_ = true;
  become_idle();
}

void Link::become_idle() {
  drop_line();
  release_pairs();
  phase_ = Phase::kIdle;
  if (closed()) {
    gone_ = true;
    return;
  }
  // Credits alone are for nobody if the peer has closed; a cell must reach it or fail.
  const bool cells =
      std::any_of(queue_.begin(), queue_.end(), [](const Work& work) { return !work.credit; });
  if (!cells) return drop_queue();
  dial();
}

void Link::drop_queue() {
  home_.unsent -= queue_.size();
  queue_.clear();
}

void Link::on_write_received() {
  ++received_;
  if (bye_) end_if_done();
}

void Link::on_send_done(size_t pair, uint64_t wr_id) {
  pairs_[pair]->completed(wr_id);
  if (ending()) end_if_done();
}

void Link::on_error(size_t pair, const ibv_wc& completion) {
  const NicRecord& peer_nic =
      peer_nics_.empty() ? NicRecord() : peer_nics_[pair % peer_nics_.size()];
  fail(completion_failure(name_, pairs_[pair]->nic(), peer_nic, completion));
}

void Link::fail(Status why) {
  if (phase_ == Phase::kDown || gone_) return;
  release_pairs();
  drop_queue();
  if (line_.open()) {
    line_.send(encode_text(Frame::kBroken, why.message()));
    drop_line();
  }
  phase_ = Phase::kDown;
  deadline_.reset();
  failure_ = std::move(why);
  if (closed()) {
    gone_ = true;
    return;
  }
  home_.downs.push_back(id_);
  home_.waiter->ring();
}

}  // namespace railyard::verbs
