// SPDX-License-Identifier: Apache-2.0
#include "comm/node_setup.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace railyard::comm {
namespace {

constexpr uint32_t kMaxGreeting = 256;
constexpr size_t kMateFds = 3;              ///< staging, landing, bell
constexpr size_t kMakerFds = kMateFds + 1;  ///< and the segment, from its maker

/// Processes of other users know no key, but could keep us waiting.
bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return Status::system(errno, "cannot duplicate a descriptor");
  return copy;
}

class Setup {
 public:
  Setup(NodeSetup& setup, net::Deadline deadline)
      : in_(setup),
        deadline_(deadline),
        members_(setup.topology.members(setup.topology.node_of(setup.rank))),
        local_(static_cast<size_t>(setup.topology.local_index(setup.rank))),
        connections_(members_.size()),
        called_(members_.size()) {
    node_.mates.resize(members_.size());
  }

  Result<Node> run() {
    Status status = prepare();
    for (size_t mate = 0; status.ok() && mate < local_; ++mate) status = call(mate);
    for (size_t left = members_.size() - local_ - 1; status.ok() && left > 0; --left) {
      status = answer_next();
    }
    for (size_t mate = 0; status.ok() && mate < local_; ++mate) {
      status = named(mate, take(mate, receive(mate)));
    }
    if (!status.ok()) return status;
    return std::move(node_);
  }

 private:
  int rank_of(size_t mate) const { return members_[mate]; }
  const Introduction& about(size_t mate) const {
    return in_.introductions[static_cast<size_t>(rank_of(mate))];
  }
  const Offer& offer_of(size_t mate) const {
    return in_.offers[static_cast<size_t>(rank_of(mate))];
  }
  Status named(size_t mate, Status status) const {
    if (status.ok()) return status;
    return Status::error(status.code(), "setting up the node with %s: %s",
                         name_of(rank_of(mate), about(mate)).c_str(), status.message().c_str());
  }

  /// This rank's own part; the segment if it is the one who makes it.
  Status prepare() {
    exchange::Mate& self = node_.mates[local_];
    self.staging = in_.gpu.staging();
    self.landing = in_.gpu.landing();
    Result<UniqueFd> bell = duplicate(in_.gpu.carrier().bell());
    if (!bell.ok()) return bell.status();
    self.bell = bell.take();
    if (local_ != 0) return {};
    auto made = device::Region::create(in_.gpu.driver(), in_.gpu.ordinal(),
                                       device::MemoryKind::kHost, in_.segment_bytes);
    if (!made.ok()) return made.status();
    node_.segment = made.take();
    const Result<Secret> id = make_secret();
    if (!id.ok()) return id.status();
    segment_ = {*id, device::MemoryKind::kHost, node_.segment->bytes()};
    in_.regions.add(segment_, in_.gpu.ordinal(), node_.segment);
    return {};
  }

  Status call(size_t mate) {
    Result<UniqueFd> fd = net::connect_to_unix(offer_of(mate).unix_name, deadline_);
    if (!fd.ok()) return named(mate, fd.status());
    connections_[mate] = fd.take();
    return named(mate, send(connections_[mate].get()));
  }

  /// Takes in the next mate that calls; strangers are turned away.
  Status answer_next() {
    while (true) {
      if (!net::wait_for(in_.listener.get(), POLLIN, deadline_).ok()) return missing();
      Result<UniqueFd> fd = net::accept_next(in_.listener.get());
      if (!fd.ok()) return fd.status();
      if (!fd->valid() || !same_user(fd->get())) continue;
      Result<net::FrameWithFds> frame =
          net::receive_with_fds(fd->get(), kMaxGreeting, kMakerFds, deadline_);
      if (!frame.ok()) continue;
      const auto caller = caller_of(*frame);
      if (!caller || *caller <= local_ || called_[*caller]) continue;
      called_[*caller] = true;
      connections_[*caller] = fd.take();
      Status status = send(connections_[*caller].get());
      if (status.ok()) status = take(*caller, std::move(frame));
      return named(*caller, status);
    }
  }

  Status missing() const {
    std::string who;
    for (size_t mate = local_ + 1; mate < members_.size(); ++mate) {
      if (called_[mate]) continue;
      who += (who.empty() ? "" : ", ") + name_of(rank_of(mate), about(mate));
    }
    return Status::error(Code::kRemoteError,
                         "setting up the node: %s did not call in time (do the ranks of a node "
                         "share a network namespace?)",
                         who.c_str());
  }

  Status send(int fd) const {
    wire::Writer out;
    out.raw(in_.key);
    out.i32(in_.rank);
    std::vector<int> fds = {in_.gpu.staging()->fd(), in_.gpu.landing()->fd(),
                            in_.gpu.carrier().bell()};
    if (local_ == 0) {
      out.raw(segment_.id);
      out.u64(segment_.bytes);
      fds.push_back(node_.segment->fd());
    }
    return net::send_with_fds(fd, out.bytes(), fds, deadline_);
  }

  Result<net::FrameWithFds> receive(size_t mate) {
    auto frame =
        net::receive_with_fds(connections_[mate].get(), kMaxGreeting, kMakerFds, deadline_);
    if (!frame.ok()) return frame;
    const auto who = caller_of(*frame);
    if (who && *who == mate) return frame;
    return Status::error(Code::kRemoteError, "somebody else answers in its place");
  }

  /// Local index of the mate who sent the frame; nothing if it has not the key.
  std::optional<size_t> caller_of(const net::FrameWithFds& frame) const {
    wire::Reader in(frame.bytes);
    const auto key = in.raw(in_.key.size());
    const int rank = in.i32();
    if (!in.ok() || !net::equal_secrets(key, in_.key)) return std::nullopt;
    const auto found = std::find(members_.begin(), members_.end(), rank);
    if (found == members_.end()) return std::nullopt;
    return static_cast<size_t>(found - members_.begin());
  }

  /// Maps what a mate has passed.
  Status take(size_t mate, Result<net::FrameWithFds> frame) {
    if (!frame.ok()) return frame.status();
    const size_t expected = mate == 0 ? kMakerFds : kMateFds;
    if (frame->fds.size() != expected) {
      return Status::error(Code::kRemoteError, "%zu descriptors came instead of %zu",
                           frame->fds.size(), expected);
    }
    const Offer& offer = offer_of(mate);
    exchange::Mate& entry = node_.mates[mate];
    Status status = map(offer.staging, std::move(frame->fds[0]), entry.staging);
    if (status.ok()) status = map(offer.landing, std::move(frame->fds[1]), entry.landing);
    entry.bell = std::move(frame->fds[2]);
    if (status.ok() && mate == 0) status = take_segment(*frame);
    // Ranks of one process end together.
    if (about(mate).process != about(local_).process) entry.life = std::move(connections_[mate]);
    return status;
  }

  Status take_segment(net::FrameWithFds& frame) {
    wire::Reader in(frame.bytes);
    in.raw(in_.key.size());
    in.i32();
    const auto id = in.raw(segment_.id.size());
    segment_.bytes = in.u64();
    if (!in.complete() || segment_.bytes < in_.segment_bytes) {
      return Status::error(Code::kRemoteError, "the node segment is not what was agreed");
    }
    std::copy(id.begin(), id.end(), segment_.id.begin());
    return map(segment_, std::move(frame.fds[kMateFds]), node_.segment);
  }

  Status map(const Pool& pool, UniqueFd fd, std::shared_ptr<device::Region>& region) {
    auto mapped = in_.regions.map(in_.gpu.driver(), in_.gpu.ordinal(), pool, std::move(fd));
    if (!mapped.ok()) return mapped.status();
    region = mapped.take();
    return {};
  }

  NodeSetup& in_;
  const net::Deadline deadline_;
  const std::span<const int> members_;
  const size_t local_;
  std::vector<UniqueFd> connections_;  ///< by local index, until a Mate takes them over
  std::vector<bool> called_;           ///< by local index: higher ones that have
  Pool segment_;
  Node node_;
};

}  // namespace

Result<NodeListener> listen_for_mates() {
  const Result<Secret> secret = make_secret();
  if (!secret.ok()) return secret.status();
  NodeListener listener;
  listener.name = "railyard-";
  for (const std::byte byte : *secret) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    listener.name += digits;
  }
  Result<UniqueFd> fd = net::listen_on_unix(listener.name);
  if (!fd.ok()) return fd.status();
  listener.fd = fd.take();
  return listener;
}

Result<Node> set_up_node(NodeSetup setup, net::Deadline deadline) {
  return Setup(setup, deadline).run();
}

}  // namespace railyard::comm
