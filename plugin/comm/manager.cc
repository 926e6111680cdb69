// SPDX-License-Identifier: Apache-2.0
#include "comm/manager.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/file_template.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "comm/communicator.h"
#include "comm/gpu_facts.h"
#include "comm/join.h"
#include "comm/make_manager.h"
#include "comm/process.h"
#include "comm/rendezvous.h"
#include "comm/stats.h"

namespace railyard::comm {
namespace {

constexpr size_t kMarkOffset = sizeof(ncclUniqueId) - kMarkBytes;

/// Owns the thread; letting go of one that is not done waits for it.
class ThreadedJoining final : public Joining {
 public:
  using Body = std::function<std::shared_ptr<JoinedCommunicator>()>;

  ~ThreadedJoining() override {
    if (thread_.joinable()) thread_.join();
  }
  Status start(Body body) {
    auto thread = start_service_thread("railyard-join", [this, body = std::move(body)] {
      std::shared_ptr<Communicator> outcome = body();
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
      done_ = true;
      changed_.notify_all();
    });
    if (thread.ok()) thread_ = thread.take();
    return thread.status();
  }
  std::shared_ptr<Communicator> wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return outcome_;
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::shared_ptr<Communicator> outcome_;
  std::thread thread_;
};

class RealManager final : public Manager {
 public:
  RealManager(Config config, NcclEnv nccl) : process_(std::move(config), std::move(nccl)) {
    close_in_children();
  }

  bool enabled() const override { return process_.config().comms != CommsMode::kOff; }
  void mark(ncclUniqueId* id) override;
  std::shared_ptr<Joining> join(std::span<const ncclUniqueId> ids, int ranks, int rank) override;
  std::shared_ptr<Joining> join_split(ncclComm_t parent, int color, int key) override;
  std::shared_ptr<Joining> join_shrink(ncclComm_t parent, std::span<const int> excluded) override;
  std::shared_ptr<Joining> join_grow(ncclComm_t parent, int ranks) override;
  void mark_growth(ncclComm_t parent, ncclUniqueId* id) override;
  bool adopt(ncclComm_t handle, const Stranger& stranger) override;
  void bind(ncclComm_t handle, std::shared_ptr<Communicator> communicator) override;
  std::shared_ptr<Communicator> find(ncclComm_t handle) override;
  std::shared_ptr<Communicator> unbind(ncclComm_t handle) override;

 private:
  static CUcontext caller_context();
  static std::shared_ptr<Joining> start(ThreadedJoining::Body body);
  /// Where to write the mark; empty, with a log line, if it must not be written.
  std::span<std::byte> room_for_mark(ncclUniqueId* id) const;
  /// A communicator whose ranks can meet for its children.
  std::shared_ptr<JoinedCommunicator> look_up(ncclComm_t handle);
  /// To the meeting for a child of `parent`.
  JoinRequest invite(const std::shared_ptr<JoinedCommunicator>& parent, MeetingPoint point);

  Process process_;
  std::atomic<bool> any_bound_{false};  ///< false: find() has nothing to look for
  std::shared_mutex mutex_;             ///< guards communicators_
  std::unordered_map<ncclComm_t, std::shared_ptr<JoinedCommunicator>> communicators_;
};

/// For processes in which railyard is off.
class IdleManager final : public Manager {
 public:
  bool enabled() const override { return false; }
  void mark(ncclUniqueId*) override {}
  std::shared_ptr<Joining> join(std::span<const ncclUniqueId>, int, int) override {
    return nullptr;
  }
  std::shared_ptr<Joining> join_split(ncclComm_t, int, int) override { return nullptr; }
  std::shared_ptr<Joining> join_shrink(ncclComm_t, std::span<const int>) override {
    return nullptr;
  }
  std::shared_ptr<Joining> join_grow(ncclComm_t, int) override { return nullptr; }
  void mark_growth(ncclComm_t, ncclUniqueId*) override {}
  bool adopt(ncclComm_t, const Stranger&) override { return false; }
  void bind(ncclComm_t, std::shared_ptr<Communicator>) override {}
  std::shared_ptr<Communicator> find(ncclComm_t) override { return nullptr; }
  std::shared_ptr<Communicator> unbind(ncclComm_t) override { return nullptr; }
};

std::span<const std::byte> mark_of(const ncclUniqueId& id) {
  return std::as_bytes(std::span(id.internal)).subspan(kMarkOffset);
}

void write_mark(const MeetingPoint& point, std::span<std::byte> room) {
  const auto bytes = encode_mark(point);
  std::copy(bytes.begin(), bytes.end(), room.begin());
}

std::span<std::byte> RealManager::room_for_mark(ncclUniqueId* id) const {
  if (id == nullptr) return {};
  if (!process_.nccl().text("NCCL_COMM_ID").empty()) {
    log::warn(
        "NCCL_COMM_ID is set: unique ids carry no meeting point, all communicators stay with "
        "NCCL");
    return {};
  }
  const std::span<std::byte> end =
      std::as_writable_bytes(std::span(id->internal)).subspan(kMarkOffset);
  if (std::any_of(end.begin(), end.end(), [](std::byte b) { return b != std::byte{0}; })) {
    log::warn(
        "this NCCL uses the end of its unique ids itself: communicators made from them stay "
        "with NCCL");
    return {};
  }
  return end;
}

void RealManager::mark(ncclUniqueId* id) {
  const std::span<std::byte> room = room_for_mark(id);
  if (room.empty()) return;
  const auto point = process_.new_meeting();
  if (!point.ok()) {
    log::warn("no meeting point, communicators stay with NCCL: %s",
              point.status().message().c_str());
    return;
  }
  write_mark(*point, room);
}

void RealManager::mark_growth(ncclComm_t parent, ncclUniqueId* id) {
  const auto joined = look_up(parent);
  if (joined == nullptr) return;
  MeetingPoint point = joined->coming_child();
  if (const auto& rendezvous = joined->identity().rendezvous) {
    const auto address = resolve(*rendezvous);
    if (!address.ok()) {
      log::warn("new ranks will find no meeting point: %s", address.status().message().c_str());
      return;
    }
    point.address = *address;
  }
  const std::span<std::byte> room = room_for_mark(id);
  if (!room.empty()) write_mark(point, room);
}

/// Null, with a log line from the join, where there is none.
CUcontext RealManager::caller_context() {
  const auto driver = device::Driver::get();
  if (!driver.ok()) return nullptr;
  const auto context = context_of_caller(**driver);
  if (!context.ok()) log::info("no CUDA context: %s", context.status().message().c_str());
  return context.ok() ? *context : nullptr;
}

std::shared_ptr<Joining> RealManager::start(ThreadedJoining::Body body) {
  auto joining = std::make_shared<ThreadedJoining>();
  const Status started = joining->start(std::move(body));
  if (started.ok()) return joining;
  log::warn("the communicator stays with NCCL: %s", started.message().c_str());
  return nullptr;
}

std::shared_ptr<Joining> RealManager::join(std::span<const ncclUniqueId> ids, int ranks, int rank) {
  if (ranks < 2) return nullptr;
  std::optional<Mark> mark;
  for (size_t i = 0; i < ids.size() && !mark; ++i) mark = decode_mark(mark_of(ids[i]));
  if (!mark) {
    (rank <= 1 ? log::warn : log::info)(
        "rank %d of %d: the communicator stays with NCCL: its unique id has no mark, so railyard "
        "is not loaded in the process that made it (or NCCL_COMM_ID is set there)",
        rank, ranks);
    write_left(process_.config().stats_file, rank, ranks, "its unique id has no mark");
    return nullptr;
  }
  if (!mark->point) {
    log::warn(
        "rank %d of %d: the communicator stays with NCCL: its unique id was made by a "
        "railyard of protocol version %u, this one has version %u: install the same on all "
        "nodes",
        rank, ranks, mark->version, kProtocolVersion);
    return nullptr;
  }
  JoinRequest request{process_, caller_context(), *mark->point, rank, ranks, {}};
  return start([request = std::move(request)] { return comm::join(request); });
}

std::shared_ptr<JoinedCommunicator> RealManager::look_up(ncclComm_t handle) {
  const std::shared_lock lock(mutex_);
  const auto found = communicators_.find(handle);
  return found == communicators_.end() || found->second->given_up() ? nullptr : found->second;
}

JoinRequest RealManager::invite(const std::shared_ptr<JoinedCommunicator>& parent,
                                MeetingPoint point) {
  const Identity& identity = parent->identity();
  JoinRequest request{process_,      identity.context, std::move(point),
                      identity.rank, identity.ranks,   identity.rendezvous};
  if (request.rendezvous) request.nobody_met = [parent] { parent->give_up(); };
  return request;
}

std::shared_ptr<Joining> RealManager::join_split(ncclComm_t parent, int color, int key) {
  const auto joined = look_up(parent);
  if (joined == nullptr) return nullptr;
  return start([request = invite(joined, joined->next_child()), color, key] {
    return comm::join_split(request, color, key);
  });
}

std::shared_ptr<Joining> RealManager::join_shrink(ncclComm_t parent,
                                                  std::span<const int> excluded) {
  const auto joined = look_up(parent);
  if (joined == nullptr) return nullptr;
  std::vector<int> list(excluded.begin(), excluded.end());
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  const Identity& identity = joined->identity();
  const auto mine = std::lower_bound(list.begin(), list.end(), identity.rank);
  const bool sound = !list.empty() && list.front() >= 0 && list.back() < identity.ranks &&
                     (mine == list.end() || *mine != identity.rank);
  const int ranks = identity.ranks - static_cast<int>(list.size());
  if (!sound || ranks < 2) return nullptr;
  JoinRequest request = invite(joined, joined->next_shrunk(list));
  request.rank -= static_cast<int>(mine - list.begin());
  request.ranks = ranks;
  return start([request = std::move(request)] { return comm::join(request); });
}

std::shared_ptr<Joining> RealManager::join_grow(ncclComm_t parent, int ranks) {
  const auto joined = look_up(parent);
  if (joined == nullptr || ranks <= joined->ranks()) return nullptr;
  JoinRequest request = invite(joined, joined->next_child());
  request.ranks = ranks;
  return start([request = std::move(request)] { return comm::join(request); });
}

bool RealManager::adopt(ncclComm_t handle, const Stranger& stranger) {
  Identity identity;
  identity.rendezvous = find_rendezvous(process_.config(), process_.nccl());
  if (!identity.rendezvous) {
    log::info(
        "children of a communicator made before railyard was loaded stay with NCCL: neither "
        "RAILYARD_RENDEZVOUS nor MASTER_ADDR and MASTER_PORT say where its ranks can meet");
    return false;
  }
  const auto driver = device::Driver::get();
  if (!driver.ok()) return false;
  const auto context = context_of_device(**driver, stranger.device);
  if (!context.ok()) log::info("no CUDA context: %s", context.status().message().c_str());
  identity.rank = stranger.rank;
  identity.ranks = stranger.ranks;
  identity.context = context.ok() ? *context : nullptr;
  identity.point = point_of_hash(stranger.hash, stranger.ranks);
  bind(handle, std::make_shared<JoinedCommunicator>(std::move(identity)));
  return true;
}

void RealManager::bind(ncclComm_t handle, std::shared_ptr<Communicator> communicator) {
  // All communicators come from joins, so they are of one class.
  auto joined = std::static_pointer_cast<JoinedCommunicator>(std::move(communicator));
  if (joined == nullptr) return;
  const std::unique_lock lock(mutex_);
  communicators_[handle] = std::move(joined);
  any_bound_.store(true, std::memory_order_release);
}

std::shared_ptr<Communicator> RealManager::find(ncclComm_t handle) {
  if (!any_bound_.load(std::memory_order_acquire)) return nullptr;
  const std::shared_lock lock(mutex_);
  const auto found = communicators_.find(handle);
  return found == communicators_.end() ? nullptr : found->second;
}

std::shared_ptr<Communicator> RealManager::unbind(ncclComm_t handle) {
  if (!any_bound_.load(std::memory_order_acquire)) return nullptr;
  const std::unique_lock lock(mutex_);
  const auto found = communicators_.find(handle);
  if (found == communicators_.end()) return nullptr;
  std::shared_ptr<Communicator> communicator = std::move(found->second);
  communicators_.erase(found);
  return communicator;
}

}  // namespace

Manager& make_manager(const Environment& environment) {
  const Result<Config> config = parse_config(environment);
  if (!config.ok()) {
    log::warn("%s; railyard stays off", config.status().message().c_str());
    return *new IdleManager;
  }
  const std::string file = expand_file_template(config->debug_file, file_template_values());
  log::configure(config->debug, file.c_str());
  for (const std::string& sentence : unknown_parameters(environment)) {
    log::warn("%s", sentence.c_str());
  }
  if (config->comms == CommsMode::kOff) return *new IdleManager;
  return *new RealManager(*config, NcclEnv::load(environment));
}

Manager& Manager::instance() {
  static auto* const managers = new PerProcess<Manager>;
  return managers->get([] { return &make_manager(process_environment()); });
}

}  // namespace railyard::comm
