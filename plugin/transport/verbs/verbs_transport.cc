// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/verbs_transport.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/log.h"
#include "transport/verbs/device_events.h"
#include "transport/verbs/doorman.h"
#include "transport/verbs/failure.h"
#include "transport/verbs/flusher.h"
#include "transport/verbs/home.h"
#include "transport/verbs/link.h"
#include "transport/verbs/restraint.h"
#include "transport/verbs/survey.h"

namespace railyard::transport {
namespace {

using verbs::Doorman;
using verbs::Endpoint;
using verbs::Flusher;
using verbs::Home;
using verbs::Identity;
using verbs::Link;
using verbs::Nic;
using verbs::Waiter;
using verbs::Watch;

constexpr uint32_t kCreditBit = 1U << 31;
constexpr int kPollRounds = 16;  ///< of 32 completions per NIC in one progress()
/// A spinning caller need not look at sockets and devices each time.
constexpr uint32_t kLookEvery = 64;

class VerbsTransport final : public Transport {
 public:
  explicit VerbsTransport(const verbs::Options& options) { home_.options = options; }
  ~VerbsTransport() override;

  Status prepare();

  const char* name() const override { return "verbs"; }
  std::string describe() const override;
  Status listen(const Area& staging, const Area& landing) override;
  const Address& address() const override { return address_; }
  Result<LinkId> open(const Address& peer, const std::string& name) override;
  void close(LinkId link) override;
  void post_cell(LinkId link, const Cell& cell) override;
  void post_credit(LinkId link, uint32_t tag) override;
  bool progress(Receiver& receiver) override;
  int event_fd() const override { return home_.waiter->fd(); }
  bool busy() const override { return home_.unsent > 0 || home_.leaving > 0; }
  Counters counters() const override { return home_.counters; }

 private:
  Link* find(LinkId link);
  Link* open_link_of(const Identity& peer);
  /// That, or a closed one that still has to connect to send its last.
  Link* answering_link_of(const Identity& peer);
  bool flush_needed() const;

  bool poll_nics(Receiver& receiver);
  bool poll_nic(size_t index, Receiver& receiver);
  void take(size_t nic, const ibv_wc& completion, Receiver& receiver);
  void take_write(size_t nic, Link& link, uint32_t immediate, Receiver& receiver);
  void take_flush(size_t nic, const ibv_wc& completion, Receiver& receiver);
  void deliver(LinkId link, uint32_t tag, Receiver& receiver);
  bool send_waiting();
  bool look_around();
  void admit_callers();
  bool report_downs(Receiver& receiver);
  void sweep();
  bool restrain(Receiver& receiver, bool moved);

  Home home_;
  verbs::MemoryChoice memory_;
  Address address_;
  std::unique_ptr<Doorman> doorman_;
  std::vector<std::unique_ptr<Flusher>> flushers_;  ///< by NIC; empty: no flush is needed
  std::map<LinkId, std::unique_ptr<Link>> links_;
  std::map<Identity, LinkId> by_peer_;  ///< links that are open and not down
  std::set<Identity> known_;            ///< every peer that was ever opened
  uint32_t next_link_ = 0;
  uint32_t polls_ = 0;
  bool dry_ = true;  ///< the last look at each completion queue saw its end
  verbs::Restraint restraint_;
};

VerbsTransport::~VerbsTransport() {
  // Links and flushers hold queue pairs of the NICs.
  links_.clear();
  flushers_.clear();
}

Status VerbsTransport::prepare() {
  const Result<const verbs::Library*> library = verbs::Library::load(home_.options.library);
  if (!library.ok()) return library.status();
  home_.library = *library;
  Result<verbs::Machine> machine = verbs::look_around(**library, home_.options);
  if (!machine.ok()) return machine.status();
  home_.nics = std::move(machine->nics);
  home_.routes.resize(home_.nics.size());
  memory_ = machine->memory;
  Result<std::unique_ptr<Waiter>> waiter = Waiter::make();
  if (!waiter.ok()) return waiter.status();
  home_.waiter = waiter.take();
  const Result<wire::Bytes> secret = net::random_bytes(verbs::kKeyBytes + sizeof(Identity));
  if (!secret.ok()) return secret.status();
  Endpoint& self = home_.self;
  for (size_t i = 0; i < self.key.size(); ++i) self.key[i] = (*secret)[i];
  for (size_t i = 0; i < self.identity.size(); ++i)
    self.identity[i] = std::to_integer<uint8_t>((*secret)[verbs::kKeyBytes + i]);
  self.nics = static_cast<uint32_t>(home_.nics.size());
  self.queue_pairs = home_.options.queue_pairs;
  return Status();
}

std::string VerbsTransport::describe() const {
  std::string text = "verbs over ";
  for (const auto& nic : home_.nics)
    text += (nic == home_.nics.front() ? "" : ", ") + nic->describe();
  const bool on_gpu = home_.landing.host == nullptr;
  text += std::string(", landing in ") +
          verbs::name_of(on_gpu ? memory_.path : verbs::MemoryPath::kHost);
  if (!memory_.why_not_better.empty()) text += " (" + memory_.why_not_better + ")";
  return text;
}

bool VerbsTransport::flush_needed() const {
  const verbs::Options& options = home_.options;
  if (options.flush_disabled) return false;
  const bool old_gpu = home_.landing.host == nullptr && options.gpu_compute < 90;
  return options.force_flush || old_gpu;
}

Status VerbsTransport::listen(const Area& staging, const Area& landing) {
  home_.staging = staging;
  home_.landing = landing;
  for (size_t i = 0; i < home_.nics.size(); ++i) {
    Nic& nic = *home_.nics[i];
    Status status = nic.expose(staging, landing);
    const auto which = static_cast<uint32_t>(i);
    if (status.ok())
      status = home_.waiter->watch(nic.channel_fd(), EPOLLIN, Watch::kCompletions, which);
    if (status.ok()) status = nic.arm();
    if (status.ok()) status = home_.waiter->watch(nic.async_fd(), EPOLLIN, Watch::kDevice, which);
    if (!status.ok()) return status;
    if (!flush_needed()) continue;
    Result<std::unique_ptr<Flusher>> flusher = Flusher::make(nic, landing);
    if (!flusher.ok()) return flusher.status();
    flushers_.push_back(flusher.take());
  }
  Result<std::unique_ptr<Doorman>> doorman =
      Doorman::make(*home_.waiter, home_.options.bootstrap, home_.self.key);
  if (!doorman.ok()) return doorman.status();
  doorman_ = doorman.take();
  home_.self.socket = doorman_->address();
  address_ = home_.self.encode();
  return Status();
}

// ---- links --------------------------------------------------------------------------------------

Link* VerbsTransport::find(LinkId id) {
  const auto found = links_.find(id);
  return found == links_.end() ? nullptr : found->second.get();
}

Link* VerbsTransport::open_link_of(const Identity& peer) {
  const auto found = by_peer_.find(peer);
  return found == by_peer_.end() ? nullptr : find(found->second);
}

Link* VerbsTransport::answering_link_of(const Identity& peer) {
  if (Link* link = open_link_of(peer)) return link;
  for (const auto& [id, link] : links_)
    if (link->closed() && link->peer() == peer && link->may_accept()) return link.get();
  return nullptr;
}

Result<LinkId> VerbsTransport::open(const Address& peer, const std::string& name) {
  const auto endpoint = Endpoint::decode(peer);
  if (!endpoint)
    return Status::error(Code::kInvalidArgument,
                         "the address of %s is not one of this version of railyard's verbs "
                         "transport: run the same railyard everywhere",
                         name.c_str());
  if (Link* link = open_link_of(endpoint->identity)) {
    link->reopen();
    return link->id();
  }
  const auto id = static_cast<LinkId>(next_link_++);
  links_[id] = std::make_unique<Link>(home_, id, *endpoint, name);
  by_peer_[endpoint->identity] = id;
  known_.insert(endpoint->identity);
  if (doorman_->has_callers()) home_.waiter->ring();
  return id;
}

void VerbsTransport::close(LinkId id) {
  Link* link = find(id);
  if (link == nullptr) return;
  link->close();
  if (!link->closed()) return;
  const auto mine = by_peer_.find(link->peer());
  if (mine != by_peer_.end() && mine->second == id) by_peer_.erase(mine);
  home_.waiter->ring();
}

void VerbsTransport::post_cell(LinkId id, const Cell& cell) {
  restraint_.posted();
  if (Link* link = find(id)) link->post_cell(cell);
}

void VerbsTransport::post_credit(LinkId id, uint32_t tag) {
  restraint_.posted();
  if (Link* link = find(id)) link->post_credit(tag);
}

// ---- progress -----------------------------------------------------------------------------------

bool VerbsTransport::progress(Receiver& receiver) {
  bool moved = poll_nics(receiver);
  moved |= send_waiting();
  if (restraint_.armed() || ++polls_ % kLookEvery == 0) moved |= look_around();
  moved |= restrain(receiver, moved);
  moved |= report_downs(receiver);
  sweep();
  return moved;
}

bool VerbsTransport::poll_nics(Receiver& receiver) {
  bool moved = false;
  dry_ = true;
  for (size_t i = 0; i < home_.nics.size(); ++i) moved |= poll_nic(i, receiver);
  return moved;
}

bool VerbsTransport::poll_nic(size_t index, Receiver& receiver) {
  Nic& nic = *home_.nics[index];
  bool moved = false;
  std::array<ibv_wc, 32> completions;
  for (int round = 0; round < kPollRounds; ++round) {
    const int found = nic.poll(completions);
    if (found < 0) {
      verbs::fail_links_of(home_, index,
                           nic.record().name + ": its completion queue cannot be read");
      return true;
    }
    for (int i = 0; i < found; ++i) take(index, completions[static_cast<size_t>(i)], receiver);
    moved |= found > 0;
    if (static_cast<size_t>(found) < completions.size()) break;
    if (round + 1 == kPollRounds) dry_ = false;
  }
  if (flushers_.empty()) return moved;
  if (const Status status = flushers_[index]->pump(); !status.ok())
    verbs::fail_links_of(home_, index, status.message());
  return moved;
}

void VerbsTransport::take(size_t nic, const ibv_wc& completion, Receiver& receiver) {
  if (!flushers_.empty() && flushers_[nic]->queue_pair() == completion.qp_num)
    return take_flush(nic, completion, receiver);
  const bool received =
      completion.status == IBV_WC_SUCCESS && (completion.opcode & IBV_WC_RECV) != 0;
  if (received) home_.nics[nic]->receive_used();
  // Completions of queue pairs that are gone concern nobody.
  const auto route = home_.routes[nic].find(completion.qp_num);
  if (route == home_.routes[nic].end()) return;
  Link& link = *route->second.link;
  const size_t pair = route->second.pair;
  if (completion.status != IBV_WC_SUCCESS) return link.on_error(pair, completion);
  if (!received) return link.on_send_done(pair, completion.wr_id);
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
    return link.fail(Status::error(Code::kInternal, "a completion of unexpected kind %d on %s",
                                   static_cast<int>(completion.opcode),
                                   home_.nics[nic]->record().name.c_str()));
  take_write(nic, link, ntohl(completion.imm_data), receiver);
}

void VerbsTransport::take_write(size_t nic, Link& link, uint32_t immediate, Receiver& receiver) {
  const uint32_t tag = immediate & ~kCreditBit;
  const bool credit = (immediate & kCreditBit) != 0;
  // What a peer wrote before it knew that its link was closed here is for the one opened since.
  const Link* target = link.closed() ? open_link_of(link.peer()) : &link;
  if (target == nullptr) {
    home_.counters.cells_dropped += credit ? 0 : 1;
    if (!credit) link.refuse();
  } else if (credit) {
    ++home_.counters.credits_received;
    receiver.on_credit(target->id(), tag);
  } else if (flushers_.empty()) {
    deliver(target->id(), tag, receiver);
  } else {
    flushers_[nic]->add({target->id(), tag});
  }
  link.on_write_received();
}

void VerbsTransport::take_flush(size_t nic, const ibv_wc& completion, Receiver& receiver) {
  if (completion.status != IBV_WC_SUCCESS)
    return verbs::fail_links_of(
        home_, nic,
        home_.nics[nic]->record().name +
            ": reading landing memory failed: " + home_.library->wc_status_str(completion.status));
  for (const Flusher::Arrived& cell : flushers_[nic]->completed(completion.wr_id)) {
    const Link* link = find(cell.link);
    if (link != nullptr && !link->closed() && !link->down()) deliver(cell.link, cell.tag, receiver);
  }
}

void VerbsTransport::deliver(LinkId link, uint32_t tag, Receiver& receiver) {
  // Where the CPU cannot reach landing memory, the carrier has no range to show for it.
  if (home_.landing.host != nullptr && receiver.landing(link, tag).empty()) {
    ++home_.counters.cells_dropped;
    return;
  }
  ++home_.counters.cells_received;
  receiver.on_cell(link, tag);
}

bool VerbsTransport::send_waiting() {
  if (home_.unsent == 0) return false;
  bool moved = false;
  for (const auto& [id, link] : links_) moved |= link->flush();
  return moved;
}

// ---- sockets and devices ------------------------------------------------------------------------

bool VerbsTransport::look_around() {
  bool moved = false;
  for (const epoll_event& event : home_.waiter->poll()) {
    const uint32_t which = Waiter::which(event);
    switch (Waiter::what(event)) {
      case Watch::kBell:
      case Watch::kAlarm:
        break;
      case Watch::kCompletions:
        home_.nics[which]->take_events();
        break;
      case Watch::kDevice:
        verbs::read_device_events(home_, which);
        break;
      case Watch::kListener:
        doorman_->open_door();
        break;
      case Watch::kStranger:
        doorman_->hear(which);
        break;
      case Watch::kLink:
        moved = true;
        if (Link* link = find(static_cast<LinkId>(which))) link->on_line();
        break;
    }
  }
  if (home_.waiter->alarm()) {
    const verbs::Clock::time_point now = verbs::Clock::now();
    for (const auto& [id, link] : links_) link->on_alarm(now);
    doorman_->on_alarm(now);
  }
  admit_callers();
  return moved;
}

void VerbsTransport::admit_callers() {
  doorman_->for_each_caller([this](const verbs::Introduction& hello, verbs::Line& line) {
    Link* link = answering_link_of(hello.identity);
    if (link == nullptr) {
      if (known_.count(hello.identity) == 0) return;  // it is going to be opened
      line.send(verbs::encode_text(verbs::Frame::kBroken, "the link is closed at this end"));
      return doorman_->dismiss(line);
    }
    if (link->may_accept()) {
      link->accept(doorman_->hand_over(line), hello);
    } else if (link->dialling()) {
      line.send(wire::Bytes{std::byte{static_cast<uint8_t>(verbs::Frame::kYield)}});
      doorman_->dismiss(line);
    }  // else an earlier connection has yet to end
  });
}

bool VerbsTransport::report_downs(Receiver& receiver) {
  bool any = false;
  while (!home_.downs.empty()) {
    for (const LinkId id : std::exchange(home_.downs, {})) {
      Link* link = find(id);
      if (link == nullptr) continue;
      const auto mine = by_peer_.find(link->peer());
      if (mine != by_peer_.end() && mine->second == id) by_peer_.erase(mine);
      if (link->closed()) continue;
      any = true;
      const Status why = link->failure();
      receiver.on_link_down(id, why);
    }
  }
  return any;
}

void VerbsTransport::sweep() {
  std::erase_if(links_, [](const auto& entry) { return entry.second->gone(); });
}

// ---- waiting ------------------------------------------------------------------------------------

bool VerbsTransport::restrain(Receiver& receiver, bool moved) {
  const bool was_armed = restraint_.armed();
  restraint_.progressed(moved);
  if (!dry_ || !restraint_.should_arm()) {
    home_.waiter->ring();
    return false;
  }
  bool found = !was_armed && look_around();
  for (size_t i = 0; i < home_.nics.size(); ++i) {
    Nic& nic = *home_.nics[i];
    if (nic.armed()) continue;
    if (const Status status = nic.arm(); !status.ok())
      verbs::fail_links_of(home_, i, status.message());
    // What completed before it was armed makes no event.
    found |= poll_nic(i, receiver);
  }
  restraint_.armed_now();
  if (dry_) home_.waiter->hush();
  return found;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_verbs(const verbs::Options& options) {
  auto transport = std::make_unique<VerbsTransport>(options);
  if (Status status = transport->prepare(); !status.ok()) return status;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace railyard::transport
