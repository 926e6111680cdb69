// SPDX-License-Identifier: Apache-2.0
#include "exchange/channel.h"

#include <algorithm>
#include <utility>

#include "kernels/doorbell.h"

namespace railyard::exchange {
namespace {

void publish(uint64_t* word, uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

bool flag(const uint32_t* word) {
  return std::atomic_ref(const_cast<uint32_t&>(*word)).load(std::memory_order_acquire) != 0;
}

}  // namespace

bool Channel::RingReader::next(uint32_t* slot, uint64_t* bytes) {
  const kernels::RingEntry& entry = entries[head & mask];
  const uint64_t word =
      std::atomic_ref(const_cast<uint64_t&>(entry.word)).load(std::memory_order_acquire);
  if (word >> 32 != ((head + 1) & 0xffffffffU)) return false;
  *slot = static_cast<uint32_t>(word);
  *bytes = entry.bytes;
  ++head;
  return true;
}

Channel::Channel(ChannelSetup setup, Health& health)
    : setup_(std::move(setup)),
      health_(health),
      slots_(setup_.plan->slots_per_flow()),
      node_(setup_.topology->node_of(setup_.rank)),
      local_(setup_.topology->local_index(setup_.rank)),
      first_tag_(setup_.plan->landing_tag(setup_.rank, 0)),
      landing_tags_(setup_.plan->landing_slots(setup_.rank)),
      staging_tags_(setup_.plan->staging_slots(setup_.rank)),
      tags_(setup_.plan->tags(setup_.rank)),
      status_(at<kernels::RankStatus>(setup_.segment, setup_.layout->status(local_))),
      doorbell_(at<kernels::Doorbell>(setup_.segment, setup_.layout->doorbell(local_))),
      sent_(staging_tags_, kNotInUse),
      landed_(landing_tags_, kNotInUse),
      expect_(landing_tags_) {
  const Segment& layout = *setup_.layout;
  for (uint32_t slot = 0; slot < landing_tags_; ++slot) expect_[slot] = slot % slots_;
  posts_ = {at<kernels::RingEntry>(setup_.segment, layout.post_ring(local_)),
            layout.post_entries() - 1};
  for (int d = 0; d < static_cast<int>(local_count()); ++d) {
    releases_.push_back({at<kernels::RingEntry>(setup_.segment, layout.release_ring(local_, d)),
                         layout.release_entries(local_) - 1});
  }
  make_flows();
}

void Channel::make_flows() {
  const topology::Topology& topology = *setup_.topology;
  const SlotPlan& plan = *setup_.plan;
  const Segment& layout = *setup_.layout;
  out_.resize(staging_tags_ / slots_);
  for (int dst = 0; dst < topology.ranks(); ++dst) {
    if (topology.same_node(dst, setup_.rank)) continue;
    const int relay = topology.relay(setup_.rank, topology.node_of(dst));
    const uint32_t staging = plan.staging_slot(setup_.rank, dst);
    const uint32_t landing = plan.landing_slot(setup_.rank, dst);
    OutFlow& flow = out_[staging / slots_];
    flow.dst = dst;
    flow.landing_tag = plan.landing_tag(relay, landing);
    flow.landing_offset = plan.landing_offset(relay, landing);
    flow.staging_offset = plan.staging_offset(setup_.rank, staging);
    flow.credit = at<uint64_t>(setup_.segment, layout.credit(local_, dst));
  }
  in_.resize(landing_tags_ / slots_);
  for (const int src : topology.sources_relayed_by(setup_.rank)) {
    for (const int dst : topology.members(node_)) {
      const uint32_t landing = plan.landing_slot(src, dst);
      InFlow& flow = in_[landing / slots_];
      flow.src = src;
      flow.local = topology.local_index(dst);
      flow.staging_tag = plan.staging_tag(src, plan.staging_slot(src, dst));
      flow.broken_tag = plan.broken_tag(src, dst);
      flow.landing_offset = plan.landing_offset(setup_.rank, landing);
      flow.arrival = at<uint64_t>(setup_.segment, layout.arrival(flow.local, src));
      flow.doorbell = at<kernels::Doorbell>(setup_.segment, layout.doorbell(flow.local));
    }
  }
}

Status Channel::open(transport::Transport& transport) {
  const topology::Topology& topology = *setup_.topology;
  const auto open_to = [&](int peer, transport::LinkId* link) {
    const auto index = static_cast<size_t>(peer);
    Result<transport::LinkId> opened = transport.open(setup_.addresses[index], setup_.names[index]);
    if (!opened.ok()) return opened.status();
    *link = *opened;
    links_.push_back(*opened);
    return Status();
  };
  for (int node = 0; node < topology.nodes(); ++node) {
    if (node == node_) continue;
    transport::LinkId link{};
    const Status opened = open_to(topology.relay(setup_.rank, node), &link);
    if (!opened.ok()) return opened;
    for (OutFlow& flow : out_) {
      if (flow.dst >= 0 && topology.node_of(flow.dst) == node) flow.link = link;
    }
  }
  for (const int src : topology.sources_relayed_by(setup_.rank)) {
    transport::LinkId link{};
    const Status opened = open_to(src, &link);
    if (!opened.ok()) return opened;
    for (InFlow& flow : in_) {
      if (flow.src == src) flow.link = link;
    }
  }
  return {};
}

void Channel::close(transport::Transport& transport) {
  for (const transport::LinkId link : links_) transport.close(link);
  links_.clear();
}

bool Channel::progress(transport::Transport& transport) {
  // Looked at before the rings: what was posted or released before a farewell must be served first.
  const uint32_t asked = farewell_asked_.load(std::memory_order_acquire);
  const bool gone = asked != 0 && mates_gone();
  bool moved = drain_posts(transport);
  for (RingReader& ring : releases_) moved |= drain_releases(transport, ring);
  if (!fault_seen_ && flag(&status_->fault.fault)) fault_seen_ = !health_.error().ok();
  if (asked != 0) check_farewell(asked, gone);
  return moved;
}

bool Channel::drain_posts(transport::Transport& transport) {
  uint32_t slot = 0;
  uint64_t bytes = 0;
  bool moved = false;
  while (posts_.next(&slot, &bytes)) {
    post(transport, slot, bytes);
    moved = true;
  }
  return moved;
}

void Channel::post(transport::Transport& transport, uint32_t slot, uint64_t bytes) {
  if (slot >= staging_tags_ || bytes > setup_.plan->stride()) {
    health_.fail(Status::error(Code::kInternal, "post ring of %s is corrupted",
                               setup_.names[static_cast<size_t>(setup_.rank)].c_str()));
    return;
  }
  OutFlow& flow = out_[slot / slots_];
  if (flow.dst < 0 || flow.broken) return;
  const uint32_t index = slot % slots_;
  sent_[slot] = std::atomic_ref(flow.credit[index]).load(std::memory_order_relaxed);
  ++cells_out_;
  transport.post_cell(
      flow.link,
      {flow.landing_tag + index, flow.staging_offset + index * setup_.plan->stride(),
       flow.landing_offset + index * setup_.plan->stride(), static_cast<uint32_t>(bytes)});
}

bool Channel::drain_releases(transport::Transport& transport, RingReader& ring) {
  uint32_t slot = 0;
  uint64_t unused = 0;
  bool moved = false;
  while (ring.next(&slot, &unused)) {
    release(transport, slot);
    moved = true;
  }
  return moved;
}

void Channel::release(transport::Transport& transport, uint32_t slot) {
  const bool broken = (slot & kernels::kBrokenFlow) != 0;
  slot &= ~kernels::kBrokenFlow;
  if (slot >= landing_tags_) {
    health_.fail(Status::error(Code::kInternal, "release ring of %s is corrupted",
                               setup_.names[static_cast<size_t>(setup_.rank)].c_str()));
    return;
  }
  InFlow& flow = in_[slot / slots_];
  if (broken) return refuse(transport, flow);
  if (landed_[slot] == kNotInUse) return;
  landed_[slot] = kNotInUse;
  --cells_landed_;
  const uint32_t index = slot % slots_;
  if (flow.broken) {
    publish(flow.arrival + index, kernels::kPoison);
    kernels::notify(flow.doorbell);
  } else {
    transport.post_credit(flow.link, flow.staging_tag + index);
  }
}

std::span<std::byte> Channel::landing(transport::LinkId link, uint32_t tag) {
  if (tag >= landing_tags_ || setup_.landing == nullptr || landed_[tag] != kNotInUse) return {};
  const InFlow& flow = in_[tag / slots_];
  if (flow.link != link || flow.broken) return {};
  const uint64_t stride = setup_.plan->stride();
  return {setup_.landing + flow.landing_offset + tag % slots_ * stride, stride};
}

void Channel::on_cell(transport::LinkId link, uint32_t tag) {
  if (tag >= landing_tags_ || landed_[tag] != kNotInUse) return;
  InFlow& flow = in_[tag / slots_];
  if (flow.link != link || flow.broken) return;
  landed_[tag] = expect_[tag];
  expect_[tag] += slots_;
  ++cells_landed_;
  publish(flow.arrival + tag % slots_, landed_[tag] + 1);
  kernels::notify(flow.doorbell);
}

void Channel::on_credit(transport::LinkId link, uint32_t tag) {
  if (tag < landing_tags_) return;
  const uint32_t slot = tag - landing_tags_;
  if (slot >= staging_tags_) {
    const uint32_t index = slot - staging_tags_;
    if (index < out_.size() && out_[index].dst >= 0 && out_[index].link == link) {
      break_out(out_[index]);
    }
    return;
  }
  OutFlow& flow = out_[slot / slots_];
  if (flow.dst < 0 || flow.link != link || flow.broken || sent_[slot] == kNotInUse) return;
  publish(flow.credit + slot % slots_, sent_[slot] + slots_);
  sent_[slot] = kNotInUse;
  --cells_out_;
  kernels::notify(doorbell_);
}

void Channel::break_out(OutFlow& flow) {
  if (flow.broken) return;
  flow.broken = true;
  const auto first = static_cast<size_t>(&flow - out_.data()) * slots_;
  for (uint32_t i = 0; i < slots_; ++i) {
    if (sent_[first + i] != kNotInUse) --cells_out_;
    sent_[first + i] = kNotInUse;
    publish(flow.credit + i, kernels::kPoison);
  }
  kernels::notify(doorbell_);
}

void Channel::break_in(InFlow& flow) {
  if (flow.broken) return;
  flow.broken = true;
  const auto first = static_cast<size_t>(&flow - in_.data()) * slots_;
  for (uint32_t i = 0; i < slots_; ++i) {
    // What has landed may still be pulled; its slot is poisoned once it is.
    if (landed_[first + i] == kNotInUse) publish(flow.arrival + i, kernels::kPoison);
  }
  kernels::notify(flow.doorbell);
}

void Channel::refuse(transport::Transport& transport, InFlow& flow) {
  if (!flow.broken) transport.post_credit(flow.link, flow.broken_tag);
  break_in(flow);
}

void Channel::on_link_down(transport::LinkId link, const Status& why) {
  for (OutFlow& flow : out_) {
    if (flow.dst < 0 || flow.link != link) continue;
    health_.lost(flow.dst, why.message());
    break_out(flow);
  }
  for (InFlow& flow : in_) {
    if (flow.link != link) continue;
    health_.lost(flow.src, why.message());
    break_in(flow);
  }
}

void Channel::on_mate_lost(transport::Transport& transport, int local) {
  const Segment& layout = *setup_.layout;
  uint32_t* said = at<uint32_t>(setup_.segment, layout.farewell(local));
  // Another member may have noticed before, but only this one knows whom it relays to the mate.
  if (std::atomic_ref(*said).load(std::memory_order_acquire) == kSaid) return;
  const int mate = setup_.topology->members(node_)[static_cast<size_t>(local)];
  health_.lost(mate, setup_.names[static_cast<size_t>(mate)] + " has ended unexpectedly");
  for (int l = 0; l < static_cast<int>(local_count()); ++l) {
    uint64_t* arrival = at<uint64_t>(setup_.segment, layout.arrival(l, mate));
    uint64_t* credit = at<uint64_t>(setup_.segment, layout.credit(l, mate));
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      publish(arrival + slot, kernels::kPoison);
      publish(credit + slot, kernels::kPoison);
    }
    for (const int src : setup_.topology->sources_relayed_by(mate)) {
      uint64_t* relayed = at<uint64_t>(setup_.segment, layout.arrival(l, src));
      for (uint32_t slot = 0; slot < slots_; ++slot) publish(relayed + slot, kernels::kPoison);
    }
    kernels::notify(at<kernels::Doorbell>(setup_.segment, layout.doorbell(l)));
  }
  // Who sends to it by way of this rank has no link to it that could go down.
  for (InFlow& flow : in_) {
    if (flow.local == local) refuse(transport, flow);
  }
  std::atomic_ref(*said).store(kLost, std::memory_order_release);
  ring_mates();
}

bool Channel::settled() const {
  const uint64_t finished = std::atomic_ref(status_->exchanges).load(std::memory_order_acquire);
  return launched_.load(std::memory_order_acquire) == finished;
}

bool Channel::in_flight() const { return cells_out_ != 0 || cells_landed_ != 0 || !settled(); }

void Channel::announce_sleep() {
  kernels::announce_sleep(at<uint32_t>(setup_.segment, setup_.layout->sleeping(local_)));
}

void Channel::check_farewell(uint32_t farewell, bool gone) {
  std::lock_guard lock(mutex_);
  if (!farewell_said_) {
    if (cells_out_ != 0) return;
    uint32_t* said = at<uint32_t>(setup_.segment, setup_.layout->farewell(local_));
    std::atomic_ref(*said).store(farewell, std::memory_order_release);
    farewell_said_ = true;
    ring_mates();
    changed_.notify_all();
  }
  if (!all_said_ && gone) {
    all_said_ = true;
    changed_.notify_all();
  }
}

bool Channel::mates_gone() const {
  for (int l = 0; l < static_cast<int>(local_count()); ++l) {
    if (l == local_) continue;
    if (!flag(at<uint32_t>(setup_.segment, setup_.layout->farewell(l)))) return false;
  }
  return true;
}

void Channel::ring_mates() {
  for (int l = 0; l < static_cast<int>(local_count()); ++l) {
    if (l == local_) continue;
    kernels::ring({at<uint32_t>(setup_.segment, setup_.layout->sleeping(l)),
                   setup_.bells[static_cast<size_t>(l)], 0});
  }
}

void Channel::wait_farewell(bool all) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return abandoned_ || (all ? all_said_ : farewell_said_); });
}

void Channel::wait_farewell(std::chrono::steady_clock::time_point limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, limit, [&] { return all_said_; });
}

void Channel::abandon() {
  // Mates must not wait for a farewell that nobody is going to say.
  uint32_t* said = at<uint32_t>(setup_.segment, setup_.layout->farewell(local_));
  std::atomic_ref(*said).store(kLeaving, std::memory_order_release);
  ring_mates();
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  changed_.notify_all();
}

}  // namespace railyard::exchange
