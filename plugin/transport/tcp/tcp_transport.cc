// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_transport.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transport/tcp/door.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/incoming.h"
#include "transport/tcp/outgoing.h"
#include "transport/tcp/peer.h"
#include "transport/tcp/poller.h"

namespace railyard::transport {
namespace {

using tcp::Clock;
using tcp::Incoming;
using tcp::Outgoing;
using tcp::Peer;
using tcp::Source;

constexpr auto kDoubt = std::chrono::seconds(2);

/// Nothing is freed while an event of it may be in hand: what ends goes to `graveyard_` until the
/// end of progress().
class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpOptions options, std::unique_ptr<tcp::Poller> poller, const tcp::Token& id,
               const tcp::Token& secret)
      : poller_(std::move(poller)), door_(*poller_, options, secret), options_(std::move(options)) {
    self_.id = id;
    self_.secret = secret;
  }
  ~TcpTransport() override;

  const char* name() const override { return "tcp"; }
  std::string describe() const override {
    return "tcp at " + self_.at.text() + ", landing in host memory";
  }
  Status listen(const Area& staging, const Area& landing) override;
  const Address& address() const override { return address_; }
  Result<LinkId> open(const Address& peer, const std::string& name) override;
  void close(LinkId link) override;
  void post_cell(LinkId link, const Cell& cell) override;
  void post_credit(LinkId link, uint32_t tag) override;
  bool progress(Receiver& receiver) override;
  int event_fd() const override { return poller_->fd(); }
  bool busy() const override { return tally_.unsent > 0; }
  Counters counters() const override { return tally_.counters; }

 private:
  struct Link {
    Peer* peer = nullptr;  ///< null once the link is down or closed
    uint32_t references = 0;
  };

  Link* find(LinkId link);
  /// Where to post to; null if the link is down or closed.
  Outgoing* outgoing(LinkId link);
  Peer& meet(const tcp::Token& id);

  bool handle(const epoll_event& event, Receiver& receiver);
  bool handle_incoming(Incoming& incoming, Receiver& receiver);
  bool read(Incoming& incoming, Receiver& receiver);
  /// A connection that has proven to come from `opener`; null if there is no room for it.
  Incoming* admit(std::unique_ptr<Incoming> incoming, const tcp::Token& opener);
  void drop(Incoming& incoming, bool reset = false);

  void schedule(Outgoing& out);
  void settle(Outgoing& out, Outgoing::Outcome outcome);
  void ended(Outgoing& out);
  void settle_doubt(Peer& peer);
  bool write_scheduled();
  void bury(std::unique_ptr<Outgoing> out);

  void check_deadlines();
  void link_down(Peer& peer, Status why);
  bool deliver_downs(Receiver& receiver);
  void reap();

  // Connections refer to these two.
  std::unique_ptr<tcp::Poller> poller_;
  tcp::Tally tally_;

  tcp::Door door_;
  const TcpOptions options_;
  tcp::Endpoint self_;
  Address address_;
  Area staging_, landing_;
  std::map<tcp::Token, std::unique_ptr<Peer>> peers_;
  std::vector<Link> links_;                           ///< by LinkId
  std::vector<std::unique_ptr<Outgoing>> lingering_;  ///< of closed links
  uint32_t held_ = 0;                                 ///< connections of unknown peers

  bool progressing_ = false;
  std::vector<Outgoing*> scheduled_, turn_;
  std::vector<std::pair<LinkId, Status>> downs_;  ///< yet to be reported
  std::vector<std::unique_ptr<Source>> graveyard_;
};

TcpTransport::~TcpTransport() {
  // A goodbye posted a moment ago still goes out if the socket takes it.
  bool moved = false;
  for (const auto& out : lingering_) out->write(&moved);
}

Status TcpTransport::listen(const Area& staging, const Area& landing) {
  if (staging.host == nullptr || landing.host == nullptr) {
    return Status::error(Code::kInvalidArgument,
                         "the tcp transport needs staging and landing in host memory");
  }
  staging_ = staging;
  landing_ = landing;
  const Status opened = door_.open();
  if (!opened.ok()) return opened;
  self_.at = door_.address();
  address_ = self_.encode();
  return {};
}

// ---- links --------------------------------------------------------------------------------------

TcpTransport::Link* TcpTransport::find(LinkId link) {
  const auto index = static_cast<size_t>(link);
  return index < links_.size() && links_[index].references > 0 ? &links_[index] : nullptr;
}

Peer& TcpTransport::meet(const tcp::Token& id) {
  std::unique_ptr<Peer>& peer = peers_[id];
  if (peer == nullptr) peer = std::make_unique<Peer>();
  return *peer;
}

Result<LinkId> TcpTransport::open(const Address& address, const std::string& name) {
  const Result<tcp::Endpoint> endpoint = tcp::Endpoint::decode(address);
  if (!endpoint.ok()) return endpoint.status();
  Peer& peer = meet(endpoint->id);
  if (peer.link) {
    ++links_[static_cast<size_t>(*peer.link)].references;
    return *peer.link;
  }
  peer.endpoint = *endpoint;
  peer.name = name;
  peer.link = LinkId(static_cast<uint32_t>(links_.size()));
  links_.push_back({&peer, 1});
  if (!std::exchange(peer.known, true)) {
    for (const auto& incoming : peer.in) {
      incoming->held = false;
      poller_->change(incoming->fd(), EPOLLIN, incoming.get());
      --held_;
    }
  }
  return *peer.link;
}

void TcpTransport::close(LinkId id) {
  Link* link = find(id);
  if (link == nullptr || --link->references > 0) return;
  Peer* peer = std::exchange(link->peer, nullptr);
  if (peer == nullptr) return;
  peer->link.reset();
  peer->doubt.reset();
  if (peer->out == nullptr) return;
  if (peer->out->gone()) return bury(std::move(peer->out));
  peer->out->peer = nullptr;
  peer->out->finish();
  schedule(*peer->out);
  lingering_.push_back(std::move(peer->out));
}

Outgoing* TcpTransport::outgoing(LinkId id) {
  const Link* link = find(id);
  if (link == nullptr || link->peer == nullptr) return nullptr;
  Peer& peer = *link->peer;
  if (peer.out == nullptr) {
    peer.out = std::make_unique<Outgoing>(*poller_, tally_, self_.at, peer.endpoint.at,
                                          tcp::encode_hello(peer.endpoint.secret, self_.id), &peer);
  }
  return peer.out.get();
}

void TcpTransport::post_cell(LinkId link, const Cell& cell) {
  Outgoing* out = outgoing(link);
  if (out == nullptr) return;
  if (cell.tag > kMaxTag || cell.staging_offset > staging_.bytes ||
      cell.bytes > staging_.bytes - cell.staging_offset) {
    return link_down(*out->peer, Status::error(Code::kInternal,
                                               "a cell for %s lies outside staging memory; please "
                                               "report this",
                                               out->peer->name.c_str()));
  }
  out->post_cell(cell.tag, {staging_.host + cell.staging_offset, cell.bytes});
  schedule(*out);
}

void TcpTransport::post_credit(LinkId link, uint32_t tag) {
  Outgoing* out = outgoing(link);
  if (out == nullptr) return;
  out->post_credit(tag);
  schedule(*out);
}

// ---- progress -----------------------------------------------------------------------------------

bool TcpTransport::progress(Receiver& receiver) {
  progressing_ = true;
  bool moved = write_scheduled();
  for (const epoll_event& event : poller_->poll()) moved |= handle(event, receiver);
  if (poller_->alarm()) check_deadlines();
  moved |= write_scheduled();  // what was posted meanwhile
  moved |= deliver_downs(receiver);
  reap();
  progressing_ = false;
  if (!scheduled_.empty()) poller_->ring();
  return moved;
}

bool TcpTransport::handle(const epoll_event& event, Receiver& receiver) {
  auto* source = static_cast<Source*>(event.data.ptr);
  if (source->dead) return false;
  bool moved = false;
  switch (source->kind) {
    case Source::Kind::kListener:
      door_.accept();
      break;
    case Source::Kind::kIncoming:
      moved = handle_incoming(static_cast<Incoming&>(*source), receiver);
      break;
    case Source::Kind::kOutgoing: {
      auto& out = static_cast<Outgoing&>(*source);
      settle(out, out.react(event.events, &moved));
      break;
    }
  }
  return moved;
}

bool TcpTransport::handle_incoming(Incoming& incoming, Receiver& receiver) {
  if (incoming.held) {  // only errors are reported
    --held_;
    drop(incoming);
    return false;
  }
  if (incoming.peer != nullptr) return read(incoming, receiver);
  tcp::Token opener{};
  std::unique_ptr<Incoming> proven = door_.prove(incoming, &opener);
  if (proven == nullptr) return false;
  Incoming* admitted = admit(std::move(proven), opener);
  return admitted != nullptr && !admitted->held && read(*admitted, receiver);
}

Incoming* TcpTransport::admit(std::unique_ptr<Incoming> incoming, const tcp::Token& opener) {
  const auto met = peers_.find(opener);
  const bool hold = met == peers_.end() || !met->second->known;
  if (hold && held_ >= options_.max_held) {
    log::trace("tcp: dropped a connection: %u wait for their links to be opened already", held_);
    incoming->close(*poller_);
    graveyard_.push_back(std::move(incoming));
    return nullptr;
  }
  Peer& peer = meet(opener);
  peer.departed = false;
  incoming->peer = &peer;
  incoming->held = hold;
  if (hold) {
    ++held_;
    poller_->change(incoming->fd(), 0, incoming.get());
  }
  peer.in.push_back(std::move(incoming));
  return peer.in.back().get();
}

bool TcpTransport::read(Incoming& incoming, Receiver& receiver) {
  Peer& peer = *incoming.peer;
  bool moved = false;
  const auto outcome =
      incoming.read({receiver, peer.link, tally_.counters, landing_.bytes}, &moved);
  if (moved && peer.doubt) peer.doubt->until = Clock::now() + kDoubt;
  switch (outcome) {
    case Incoming::Outcome::kDry:
    case Incoming::Outcome::kMore:
      break;
    case Incoming::Outcome::kGoodbye:
      drop(incoming);
      peer.departed = peer.in.empty();
      settle_doubt(peer);
      break;
    case Incoming::Outcome::kRefused:
      drop(incoming, true);
      break;
    case Incoming::Outcome::kEnded:
      drop(incoming);
      if (peer.link) link_down(peer, peer.broken(incoming.fault()));
      break;
  }
  return moved;
}

void TcpTransport::drop(Incoming& incoming, bool reset) {
  incoming.close(*poller_, reset);
  auto& all = incoming.peer->in;
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const auto& entry) { return entry.get() == &incoming; });
  if (at == all.end()) return;
  graveyard_.push_back(std::move(*at));
  all.erase(at);
}

// ---- sending ------------------------------------------------------------------------------------

void TcpTransport::schedule(Outgoing& out) {
  if (out.scheduled || !out.can_write()) return;
  out.scheduled = true;
  scheduled_.push_back(&out);
  if (!progressing_) poller_->ring();
}

bool TcpTransport::write_scheduled() {
  bool moved = false;
  turn_.swap(scheduled_);
  for (Outgoing* out : turn_) {
    out->scheduled = false;
    if (!out->dead) settle(*out, out->write(&moved));
  }
  turn_.clear();
  return moved;
}

void TcpTransport::settle(Outgoing& out, Outgoing::Outcome outcome) {
  switch (outcome) {
    case Outgoing::Outcome::kWaiting:
      break;
    case Outgoing::Outcome::kMore:
      schedule(out);
      break;
    case Outgoing::Outcome::kEnded:
      ended(out);
      break;
  }
}

void TcpTransport::ended(Outgoing& out) {
  if (out.peer == nullptr) {
    const auto at = std::find_if(lingering_.begin(), lingering_.end(),
                                 [&](const auto& entry) { return entry.get() == &out; });
    if (out.unsent() > 0) {
      log::trace("tcp: %llu cells and credits of a closed link were not sent: %s",
                 static_cast<unsigned long long>(out.unsent() - 1), out.fault().c_str());
    }
    bury(std::move(*at));
    lingering_.erase(at);
    return;
  }
  Peer& peer = *out.peer;
  peer.doubt = Peer::Doubt{peer.broken(out.fault()), Clock::now() + kDoubt};
  poller_->wake_at(peer.doubt->until);
  settle_doubt(peer);
}

void TcpTransport::settle_doubt(Peer& peer) {
  if (!peer.doubt || !peer.in.empty()) return;
  if (peer.departed && !peer.out->failed() && peer.out->unsent() == 0) {
    peer.doubt.reset();
    bury(std::move(peer.out));
  } else {
    link_down(peer, peer.doubt->why);
  }
}

void TcpTransport::bury(std::unique_ptr<Outgoing> out) {
  out->abandon();
  out->dead = true;
  graveyard_.push_back(std::move(out));
}

// ---- ends ---------------------------------------------------------------------------------------

void TcpTransport::check_deadlines() {
  const Clock::time_point now = Clock::now();
  door_.check(now);
  for (const auto& [id, peer] : peers_) {
    if (!peer->doubt) continue;
    if (now >= peer->doubt->until) {
      link_down(*peer, peer->doubt->why);
    } else {
      poller_->wake_at(peer->doubt->until);
    }
  }
}

void TcpTransport::link_down(Peer& peer, Status why) {
  const LinkId link = *std::exchange(peer.link, std::nullopt);
  links_[static_cast<size_t>(link)].peer = nullptr;
  downs_.emplace_back(link, std::move(why));
  peer.doubt.reset();
  peer.departed = false;
  if (peer.out != nullptr) bury(std::move(peer.out));
  while (!peer.in.empty()) drop(*peer.in.back());
  if (!progressing_) poller_->ring();
}

bool TcpTransport::deliver_downs(Receiver& receiver) {
  bool any = false;
  while (!downs_.empty()) {
    any = true;
    const auto now = std::exchange(downs_, {});
    for (const auto& [link, why] : now) {
      if (find(link) != nullptr) receiver.on_link_down(link, why);
    }
  }
  return any;
}

void TcpTransport::reap() {
  door_.reap();
  if (graveyard_.empty()) return;
  std::erase_if(scheduled_, [](const Outgoing* out) { return out->dead; });
  graveyard_.clear();
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp(const TcpOptions& options) {
  const std::string text = options.bind.text();
  if (options.bind.family() == AF_UNSPEC || text.starts_with("0.0.0.0:") ||
      text.starts_with("[::]:")) {
    return Status::error(Code::kInvalidArgument,
                         "the tcp transport needs the address of one interface, not %s; name the "
                         "interface with NCCL_SOCKET_IFNAME",
                         text.c_str());
  }
  Result<std::unique_ptr<tcp::Poller>> poller = tcp::Poller::make();
  if (!poller.ok()) return poller.status();
  const Result<tcp::Token> id = tcp::random_token();
  if (!id.ok()) return id.status();
  const Result<tcp::Token> secret = tcp::random_token();
  if (!secret.ok()) return secret.status();
  return std::unique_ptr<Transport>(
      std::make_unique<TcpTransport>(options, poller.take(), *id, *secret));
}

}  // namespace railyard::transport
