// SPDX-License-Identifier: Apache-2.0
#include "exchange/carrier.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/service_thread.h"

namespace railyard::exchange {
namespace {

// Keys of epoll events; a mate's life connection is known by its descriptor.
constexpr uint64_t kBellKey = ~uint64_t{0};
constexpr uint64_t kTransportKey = ~uint64_t{0} - 1;

constexpr long kLookAgainNs = 20'000;

}  // namespace

Carrier::Carrier(transport::Transport& transport, bool kernel_rings)
    : transport_(transport), kernel_rings_(kernel_rings) {}

Result<std::unique_ptr<Carrier>> Carrier::start(transport::Transport& transport,
                                                bool kernel_rings) {
  std::unique_ptr<Carrier> carrier(new Carrier(transport, kernel_rings));
  carrier->bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  carrier->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!carrier->bell_.valid() || !carrier->epoll_.valid()) {
    return Status::system(errno, "carrier: cannot create descriptors (see ulimit -n)");
  }
  carrier->watch(carrier->bell_.get(), kBellKey);
  carrier->watch(transport.event_fd(), kTransportKey);

  Result<std::thread> thread =
      start_service_thread("railyard-carry", [c = carrier.get()] { c->run(); });
  if (!thread.ok()) return thread.status();
  carrier->thread_ = thread.take();
  return carrier;
}

Carrier::~Carrier() {
  if (!thread_.joinable()) return;
  call([this] { stop_ = true; });
  thread_.join();
}

void Carrier::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof one);
}

void Carrier::call(std::function<void()> command) {
  std::promise<void> done;
  {
    std::lock_guard lock(mutex_);
    commands_.push_back([&] {
      command();
      done.set_value();
    });
  }
  wake();
  done.get_future().wait();
}

Status Carrier::attach(Channel& channel) {
  Status status;
  call([&] {
    status = channel.open(transport_);
    if (!status.ok()) return channel.close(transport_);
    channels_[channel.first_tag()] = &channel;
    for (const auto& [link, why] : lost_links_) channel.on_link_down(link, why);
    const std::span<const int> lives = channel.lives();
    for (size_t local = 0; local < lives.size(); ++local) {
      if (lives[local] < 0) continue;
      lives_[lives[local]] = {&channel, static_cast<int>(local)};
      watch(lives[local], static_cast<uint64_t>(lives[local]));
    }
  });
  return status;
}

void Carrier::detach(Channel& channel) {
  const auto flushed = std::make_shared<std::promise<void>>();
  call([&] {
    for (const int life : channel.lives()) {
      if (lives_.erase(life) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, life, nullptr);
    }
    channels_.erase(channel.first_tag());
    channel.close(transport_);
    flushed_.push_back(flushed);
  });
  flushed->get_future().wait_for(std::chrono::milliseconds(kFlushLimitMs));
}

transport::Counters Carrier::counters() {
  transport::Counters counters;
  call([&] { counters = transport_.counters(); });
  return counters;
}

void Carrier::watch(int fd, uint64_t key) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = key;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Carrier::run() {
  while (!stop_) {
    if (serve()) continue;
    const bool busy = in_flight();
    if (busy && may_spin_.load(std::memory_order_relaxed)) continue;
    for (const auto& [tag, channel] : channels_) channel->announce_sleep();
    // What was published before the announcement rang no bell.
    if (serve()) continue;
    block(busy);
  }
}

bool Carrier::serve() {
  bool moved = obey();
  for (const auto& [tag, channel] : channels_) moved |= channel->progress(transport_);
  moved |= transport_.progress(*this);
  if (!flushed_.empty() && !transport_.busy()) {
    for (const auto& flushed : flushed_) flushed->set_value();
    flushed_.clear();
  }
  return moved;
}

bool Carrier::obey() {
  std::vector<std::function<void()>> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (const auto& command : commands) command();
  return !commands.empty();
}

bool Carrier::in_flight() const {
  if (transport_.busy()) return true;
  for (const auto& [tag, channel] : channels_) {
    if (channel->in_flight()) return true;
  }
  return false;
}

void Carrier::block(bool in_flight) {
  pollfd poll_fd = {epoll_.get(), POLLIN, 0};
  const timespec look_again = {0, kLookAgainNs};
  const bool must_look = in_flight && !kernel_rings_;
  if (ppoll(&poll_fd, 1, must_look ? &look_again : nullptr, nullptr) <= 0) return;
  std::array<epoll_event, 16> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) on_event(events[static_cast<size_t>(i)].data.u64);
}

void Carrier::on_event(uint64_t key) {
  if (key == kTransportKey) return;  // progress() reads it
  if (key == kBellKey) {
    uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = read(bell_.get(), &rings, sizeof rings);
    return;
  }
  // Nothing is ever sent over a life connection: it can only have ended.
  const auto life = lives_.find(static_cast<int>(key));
  if (life == lives_.end()) return;
  const auto [channel, local] = life->second;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, life->first, nullptr);
  lives_.erase(life);
  channel->on_mate_lost(transport_, local);
}

Channel* Carrier::owner(uint32_t tag, uint32_t* relative) {
  auto after = channels_.upper_bound(tag);
  if (after == channels_.begin()) return nullptr;
  Channel* channel = std::prev(after)->second;
  *relative = tag - channel->first_tag();
  return *relative < channel->tags() ? channel : nullptr;
}

std::span<std::byte> Carrier::landing(transport::LinkId link, uint32_t tag) {
  uint32_t relative = 0;
  Channel* channel = owner(tag, &relative);
  return channel == nullptr ? std::span<std::byte>() : channel->landing(link, relative);
}

void Carrier::on_cell(transport::LinkId link, uint32_t tag) {
  uint32_t relative = 0;
  if (Channel* channel = owner(tag, &relative)) channel->on_cell(link, relative);
}

void Carrier::on_credit(transport::LinkId link, uint32_t tag) {
  uint32_t relative = 0;
  if (Channel* channel = owner(tag, &relative)) channel->on_credit(link, relative);
}

void Carrier::on_link_down(transport::LinkId link, const Status& why) {
  lost_links_.emplace(link, why);
  for (const auto& [tag, channel] : channels_) channel->on_link_down(link, why);
}

}  // namespace railyard::exchange
