// SPDX-License-Identifier: Apache-2.0
#include "comm/join.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "comm/decision.h"
#include "comm/meeting_seat.h"
#include "comm/node_setup.h"
#include "comm/rendezvous.h"
#include "comm/stats.h"

namespace railyard::comm {
namespace {

/// What the server's own limits do not cover: a server that has stopped.
constexpr int64_t kSlackS = 10;
constexpr int kNoChild = -1;
constexpr int kComeAgainMs = 100;

/// The ranks of a communicator at the meeting where it is made.
struct Members {
  std::vector<int> seats;  ///< by rank of the communicator
  std::vector<Introduction> introductions;
  int rank = 0;
  MeetingPoint point;  ///< of the communicator

  std::shared_ptr<const Servers> servers() const {
    Servers result;
    for (const Introduction& introduction : introductions) result.push_back(introduction.server);
    return std::make_shared<const Servers>(std::move(result));
  }
};

class Attendance {
 public:
  explicit Attendance(const JoinRequest& request)
      : request_(request),
        point_(request.point),
        join_s_(request.process.config().join_s),
        come_until_(net::Deadline::after_s(join_s_)) {}

  std::shared_ptr<JoinedCommunicator> join();
  std::shared_ptr<JoinedCommunicator> join_split(int color, int key);

 private:
  using Parts = std::vector<wire::Bytes>;
  enum class Round { kIntroductions, kOffers, kVerdicts };

  struct Part {
    int color = 0, key = 0;
    Introduction introduction;
  };

  bool sit_down();
  Status go_to_rendezvous();
  std::optional<Parts> round(std::span<const std::byte> part, Round which);
  bool come_again();
  void say_stays(const std::string& why, bool fault, bool speaker) const;
  std::shared_ptr<JoinedCommunicator> stays(const Members& members, const Decision& decision,
                                            int nodes) const;
  Identity identity(const Members& members, int nodes) const;

  std::optional<std::vector<Part>> introduce(int color, int key);
  std::optional<std::vector<Part>> meet(int color, int key);
  static Members members_of(const std::vector<Part>& parts, int color, const MeetingPoint& point,
                            int seat);
  std::shared_ptr<JoinedCommunicator> decide_and_set_up(const Members& members);

  std::shared_ptr<JoinedCommunicator> set_up(const Members& members,
                                             const topology::Topology& topology);
  Status make_offer(Offer& offer, UniqueFd& listener);
  Status make_engine(const Members& members, const topology::Topology& topology,
                     std::vector<Offer>& offers, UniqueFd listener);
  std::shared_ptr<JoinedCommunicator> conclude(const Members& members, int nodes,
                                               const std::string& trouble);
  void say_taken_over(const Members& members, int nodes) const;
  void release();

  const JoinRequest& request_;
  MeetingPoint point_;
  const int64_t join_s_;
  const net::Deadline come_until_;
  std::optional<MeetingSeat> seat_;
  SharedGpu* gpu_ = nullptr;
  std::optional<exchange::Holding> holding_;  ///< until the engine has taken it over
  uint64_t staging_bytes_ = 0, landing_bytes_ = 0;
  size_t links_ = 0;
  std::unique_ptr<exchange::Engine> engine_;
};

Status Attendance::go_to_rendezvous() {
  const auto address = resolve(*request_.rendezvous);
  if (!address.ok()) return address.status();
  point_.address = *address;
  if (request_.rank != 0) return {};
  return request_.process.open_rendezvous(listening_address(*request_.rendezvous, point_.address),
                                          point_.key);
}

bool Attendance::sit_down() {
  if (request_.rendezvous) {
    const Status there = go_to_rendezvous();
    if (!there.ok()) {
      say_stays(there.message(), true, true);
      return false;
    }
  }
  auto seat = MeetingSeat::take(point_, request_.rank, request_.ranks, come_until_);
  if (!seat.ok()) {
    say_stays(seat.status().message(), true, true);
    return false;
  }
  seat_ = seat.take();
  return true;
}

/// A server at the rendezvous may not know yet of this communicator, and turn its ranks away until
/// rank 0 comes.
bool Attendance::come_again() {
  if (!request_.rendezvous || seat_->failed_for_all()) return false;
  poll(nullptr, 0, std::min(come_until_.left_ms(), kComeAgainMs));
  if (come_until_.passed()) return false;
  auto seat = MeetingSeat::take(point_, request_.rank, request_.ranks, come_until_);
  if (!seat.ok()) return false;
  seat_ = seat.take();
  return true;
}

/// Nothing if the meeting is over; that has been logged then.
std::optional<Attendance::Parts> Attendance::round(std::span<const std::byte> part, Round which) {
  // A verdict that some have got and others have not would part them for good: wait for it.
  const net::Deadline deadline =
      which == Round::kVerdicts
          ? net::Deadline::never()
          : net::Deadline::after_s((which == Round::kIntroductions ? 1 : 2) * join_s_ + kSlackS);
  auto parts = seat_->round(part, deadline);
  while (!parts.ok() && which == Round::kIntroductions && come_again()) {
    parts = seat_->round(part, deadline);
  }
  if (parts.ok()) return parts.take();
  say_stays(parts.status().message(), true, request_.rank == seat_->lowest_present());
  return std::nullopt;
}

/// One rank speaks up for all that come to the same conclusion; the others only if asked.
void Attendance::say_stays(const std::string& why, bool fault, bool speaker) const {
  (fault && speaker ? log::warn : log::info)("rank %d of %d: the communicator stays with NCCL: %s",
                                             request_.rank, request_.ranks, why.c_str());
  write_left(request_.process.config().stats_file, request_.rank, request_.ranks, why);
}

Identity Attendance::identity(const Members& members, int nodes) const {
  Identity identity;
  identity.rank = members.rank;
  identity.ranks = static_cast<int>(members.seats.size());
  identity.nodes = nodes;
  identity.context = request_.context;
  identity.point = members.point;
  identity.servers = members.servers();
  identity.stats_file = request_.process.config().stats_file;
  return identity;
}

std::shared_ptr<JoinedCommunicator> Attendance::stays(const Members& members,
                                                      const Decision& decision, int nodes) const {
  (decision.fault && members.rank == 0 ? log::warn : log::info)(
      "rank %d of %zu: the communicator stays with NCCL: %s", members.rank, members.seats.size(),
      decision.why.c_str());
  const Identity who = identity(members, nodes);
  write_left(who.stats_file, who.rank, who.ranks, decision.why);
  return std::make_shared<JoinedCommunicator>(who);
}

std::optional<std::vector<Attendance::Part>> Attendance::introduce(int color, int key) {
  wire::Writer out;
  out.i32(color);
  out.i32(key);
  out.blob(request_.process.introduce(request_.context).encode());
  const auto parts = round(out.bytes(), Round::kIntroductions);
  if (!parts) return std::nullopt;
  std::vector<Part> result;
  for (const wire::Bytes& bytes : *parts) {
    wire::Reader in(bytes);
    Part part;
    part.color = in.i32();
    part.key = in.i32();
    const auto introduction = Introduction::decode(in.blob());
    if (!in.complete() || !introduction) {
      say_stays("rank " + std::to_string(result.size()) +
                    " introduced itself in a way this railyard does not understand: install the "
                    "same on all nodes",
                true, request_.rank == 0);
      return std::nullopt;
    }
    part.introduction = *introduction;
    result.push_back(std::move(part));
  }
  return result;
}

/// The ranks of one colour, in NCCL's order: by key, then by rank in the parent.
Members Attendance::members_of(const std::vector<Part>& parts, int color, const MeetingPoint& point,
                               int seat) {
  Members members;
  for (size_t s = 0; s < parts.size(); ++s) {
    if (parts[s].color == color) members.seats.push_back(static_cast<int>(s));
  }
  const auto part = [&](int s) -> const Part& { return parts[static_cast<size_t>(s)]; };
  std::stable_sort(members.seats.begin(), members.seats.end(),
                   [&](int a, int b) { return part(a).key < part(b).key; });
  for (size_t rank = 0; rank < members.seats.size(); ++rank) {
    members.introductions.push_back(part(members.seats[rank]).introduction);
    if (members.seats[rank] == seat) members.rank = static_cast<int>(rank);
  }
  members.point = point;
  if (!members.introductions.empty()) {
    members.point.address = members.introductions.front().server.address;
    members.point.key = members.introductions.front().server.key;
  }
  return members;
}

struct Judgement {
  std::optional<topology::Topology> topology;
  Decision decision;
};

Judgement judge(const Members& members, CommsMode mode) {
  std::vector<topology::Place> places;
  for (const Introduction& introduction : members.introductions) {
    places.push_back(introduction.place);
  }
  auto topology = topology::Topology::build(places);
  if (!topology.ok()) return {std::nullopt, {false, topology.status().message(), true}};
  Decision decision = decide(members.introductions, *topology, mode);
  return {topology.take(), std::move(decision)};
}

std::optional<std::vector<Attendance::Part>> Attendance::meet(int color, int key) {
  std::optional<std::vector<Part>> parts;
  if (sit_down()) parts = introduce(color, key);
  if (!parts && request_.nobody_met) request_.nobody_met();
  return parts;
}

std::shared_ptr<JoinedCommunicator> Attendance::join() {
  const auto parts = meet(0, 0);
  if (!parts) return nullptr;
  return decide_and_set_up(members_of(*parts, 0, point_, request_.rank));
}

std::shared_ptr<JoinedCommunicator> Attendance::decide_and_set_up(const Members& members) {
  const Judgement judgement = judge(members, request_.process.config().comms);
  if (judgement.decision.take_over) return set_up(members, *judgement.topology);
  return stays(members, judgement.decision, judgement.topology ? judgement.topology->nodes() : 0);
}

std::shared_ptr<JoinedCommunicator> Attendance::join_split(int color, int key) {
  const auto parts = meet(color, key);
  if (!parts) return nullptr;
  const CommsMode mode = request_.process.config().comms;
  const auto child = [&](int which) {
    // Children of one split differ in colour; each is to have a name of its own.
    const MeetingPoint point = point_.child(static_cast<uint32_t>(which));
    return members_of(*parts, which, point, request_.rank);
  };
  bool mine_taken_over = false, any_taken_over = false;
  std::vector<int> seen;
  for (const Part& part : *parts) {
    if (part.color < 0 || std::count(seen.begin(), seen.end(), part.color) != 0) continue;
    seen.push_back(part.color);
    const bool taken_over = judge(child(part.color), mode).decision.take_over;
    any_taken_over |= taken_over;
    if (part.color == color) mine_taken_over = taken_over;
  }
  if (any_taken_over && !mine_taken_over) {
    if (!round({}, Round::kOffers) || !round({}, Round::kVerdicts)) return nullptr;
  }
  return color < 0 ? nullptr : decide_and_set_up(child(color));
}

Status Attendance::make_offer(Offer& offer, UniqueFd& listener) {
  auto gpu = request_.process.gpu(request_.context);
  if (!gpu.ok()) return gpu.status();
  gpu_ = *gpu;
  exchange::Engine::tidy(*gpu_->gpu);
  auto holding = gpu_->gpu->hold();
  if (!holding.ok()) return holding.status();
  holding_ = *holding;
  auto listening = listen_for_mates();
  if (!listening.ok()) return listening.status();
  listener = std::move(listening->fd);
  offer.unix_name = listening->name;
  offer.address = gpu_->gpu->transport().address();
  offer.holding = *holding_;
  offer.staging = gpu_->staging;
  offer.landing = gpu_->landing;
  return {};
}

std::shared_ptr<JoinedCommunicator> Attendance::set_up(const Members& members,
                                                       const topology::Topology& topology) {
  Offer mine;
  UniqueFd listener;
  const Status offered = make_offer(mine, listener);
  if (!offered.ok()) {
    mine = Offer();
    mine.trouble = offered.message();
  }
  const auto parts = round(mine.encode(), Round::kOffers);
  if (!parts) {
    release();
    return nullptr;
  }
  std::vector<Offer> offers;
  std::string trouble;
  for (size_t rank = 0; rank < members.seats.size(); ++rank) {
    const auto offer = Offer::decode((*parts)[static_cast<size_t>(members.seats[rank])]);
    offers.push_back(offer.value_or(Offer()));
    if (!offer) offers.back().trouble = "its offer makes no sense";
    if (trouble.empty() && !offers.back().trouble.empty()) {
      trouble = name_of(static_cast<int>(rank), members.introductions[rank]) +
                " cannot take part: " + offers.back().trouble;
    }
  }
  if (trouble.empty()) {
    const Status made = make_engine(members, topology, offers, std::move(listener));
    if (!made.ok()) {
      trouble = name_of(members.rank, members.introductions[static_cast<size_t>(members.rank)]) +
                ": " + made.message();
    }
  }
  return conclude(members, topology.nodes(), trouble);
}

Status Attendance::make_engine(const Members& members, const topology::Topology& topology,
                               std::vector<Offer>& offers, UniqueFd listener) {
  exchange::Gpu& gpu = *gpu_->gpu;
  exchange::EngineSetup setup{topology, members.rank, {}, {}, {}, {}, nullptr};
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    setup.holdings.push_back(offers[rank].holding);
    setup.addresses.push_back(offers[rank].address);
    setup.names.push_back(name_of(static_cast<int>(rank), members.introductions[rank]));
  }
  auto plan = exchange::SlotPlan::make(topology, setup.holdings);
  if (!plan.ok()) return plan.status();
  gpu.trim(*holding_, *plan, members.rank);
  setup.holdings[static_cast<size_t>(members.rank)] = *holding_;
  staging_bytes_ = holding_->staging_bytes;
  landing_bytes_ = holding_->landing_bytes;

  const int my_node = topology.node_of(members.rank);
  const device::ContextScope scope(gpu.driver(), gpu.context());
  auto node = set_up_node(
      NodeSetup{topology, members.rank, members.introductions, offers, members.point.meeting,
                exchange::segment_bytes(topology, *plan, my_node), gpu, request_.process.regions(),
                std::move(listener)},
      net::Deadline::after_s(join_s_));
  if (!node.ok()) return node.status();
  setup.mates = std::move(node->mates);
  setup.segment = std::move(node->segment);
  links_ = static_cast<size_t>(topology.nodes() - 1);
  auto engine = exchange::Engine::create(gpu, std::move(setup));
  holding_.reset();  // the engine's from here on, also if it could not be made
  if (!engine.ok()) return engine.status();
  engine_ = engine.take();
  return {};
}

std::shared_ptr<JoinedCommunicator> Attendance::conclude(const Members& members, int nodes,
                                                         const std::string& trouble) {
  wire::Writer out;
  out.text(trouble);
  const auto verdicts = round(out.bytes(), Round::kVerdicts);
  if (!verdicts && (seat_->failed_for_all() || engine_ == nullptr)) {
    release();
    return nullptr;
  }
  if (!verdicts) {
    // The others may have taken the communicator over. Then NCCL would wait for them for ever;
    // an error is better.
    log::warn(
        "rank %d of %zu: the outcome of joining is unknown, so every message on this "
        "communicator will fail",
        members.rank, members.seats.size());
    engine_->abort();
    return std::make_shared<JoinedCommunicator>(identity(members, nodes), *gpu_->gpu,
                                                std::move(engine_));
  }
  std::string failure;
  for (const int seat : members.seats) {
    wire::Reader in((*verdicts)[static_cast<size_t>(seat)]);
    const std::string one = in.text();
    if (failure.empty()) failure = in.complete() ? one : "a verdict that makes no sense";
  }
  if (!failure.empty() || engine_ == nullptr) {
    release();
    return stays(members, {false, failure, true}, nodes);
  }
  say_taken_over(members, nodes);
  return std::make_shared<JoinedCommunicator>(identity(members, nodes), *gpu_->gpu,
                                              std::move(engine_));
}

void Attendance::say_taken_over(const Members& members, int nodes) const {
  const transport::Transport& transport = gpu_->gpu->transport();
  log::info(
      "rank %d of %zu: the communicator is taken over: %d nodes, transport %s (%s); it holds %llu "
      "KiB for outgoing and %llu KiB for incoming messages, and up to %zu links",
      members.rank, members.seats.size(), nodes, transport.name(), transport.describe().c_str(),
      static_cast<unsigned long long>(staging_bytes_ >> 10),
      static_cast<unsigned long long>(landing_bytes_ >> 10), links_);
}

void Attendance::release() {
  if (engine_ != nullptr) {
    engine_->discard();
    const device::ContextScope scope(gpu_->gpu->driver(), gpu_->gpu->context());
    engine_.reset();
  }
  if (holding_) gpu_->gpu->release(*holding_);
  holding_.reset();
}

}  // namespace

std::shared_ptr<JoinedCommunicator> join(const JoinRequest& request) {
  return Attendance(request).join();
}

std::shared_ptr<JoinedCommunicator> join_split(const JoinRequest& request, int color, int key) {
  return Attendance(request).join_split(color < 0 ? kNoChild : color, key);
}

}  // namespace railyard::comm
