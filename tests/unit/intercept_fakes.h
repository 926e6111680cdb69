// SPDX-License-Identifier: Apache-2.0
//
// Stand-ins around the interception: an NCCL that keeps group state and a list of what was called,
// communicators that belong to railyard or not, joins that end when the test says so. All write
// into one list of events, so that tests can tell the order.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "intercept/group.h"
#include "intercept/life.h"
#include "intercept/runtime.h"

namespace railyard::intercept {

inline std::mutex events_mutex;
inline std::condition_variable events_changed;
inline std::vector<std::string> events;

inline void happened(std::string what) {
  const std::lock_guard lock(events_mutex);
  events.push_back(std::move(what));
  events_changed.notify_all();
}
/// What happened since the last look.
inline std::vector<std::string> take_events() {
  const std::lock_guard lock(events_mutex);
  return std::exchange(events, {});
}
/// Waits until another thread has done it.
inline void wait_until_happened(const std::string& what) {
  std::unique_lock lock(events_mutex);
  events_changed.wait(
      lock, [&] { return std::find(events.begin(), events.end(), what) != events.end(); });
}

inline ncclComm_t handle(int number) {
  return reinterpret_cast<ncclComm_t>(static_cast<uintptr_t>(number) * 0x100);
}
inline std::string name(ncclComm_t comm) {
  return comm == nullptr ? "null" : std::to_string(reinterpret_cast<uintptr_t>(comm) / 0x100);
}
inline cudaStream_t stream(int number) {
  return reinterpret_cast<cudaStream_t>(static_cast<uintptr_t>(number));
}

/// NCCL's group rules: errors of calls are latched and come back from the outermost end.
struct FakeNccl {
  int depth = 0;
  ncclResult_t latched = ncclSuccess;
  ncclResult_t end_result = ncclSuccess;  ///< of an outermost end without errors
  ncclResult_t create_result = ncclSuccess;
  std::map<ncclComm_t, ncclResult_t> states;  ///< what ncclCommGetAsyncError tells
  std::string last_error;
  int created = 0;

  ncclResult_t latch(ncclResult_t result) {
    if (depth > 0 && result != ncclSuccess && result != ncclInProgress) latched = result;
    return result;
  }
  ncclResult_t end(const char* what) {
    happened(what);
    if (depth == 0) return ncclInvalidUsage;
    if (--depth > 0) return ncclSuccess;
    const ncclResult_t result = latched != ncclSuccess ? latched : end_result;
    latched = ncclSuccess;
    return result;
  }
  ncclResult_t message(const char* what, int peer, ncclComm_t comm, ncclDataType_t type) {
    happened(std::string(what) + " " + name(comm));
    const bool valid = comm != nullptr && peer >= 0 && peer < 4 && type_bytes(type) > 0;
    if (!valid) last_error = "NCCL refuses a message";
    return latch(valid ? ncclSuccess : ncclInvalidArgument);
  }
  ncclResult_t create(ncclComm_t* comm) {
    happened("create");
    const bool made = create_result == ncclSuccess || create_result == ncclInProgress;
    *comm = made ? handle(++created) : nullptr;
    return latch(create_result);
  }
};

inline FakeNccl* fake_nccl = nullptr;

inline void add_fake_traffic(NcclLibrary& t) {
  t.ncclGroupStart = [] { return happened("GroupStart"), ++fake_nccl->depth, ncclSuccess; };
  t.ncclGroupEnd = [] { return fake_nccl->end("GroupEnd"); };
  t.ncclGroupSimulateEnd = [](ncclSimInfo_t*) { return fake_nccl->end("GroupSimulateEnd"); };
  t.ncclSend = [](const void*, size_t, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t) { return fake_nccl->message("Send", peer, comm, type); };
  t.ncclRecv = [](void*, size_t, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t) {
    return fake_nccl->message("Recv", peer, comm, type);
  };
  t.ncclAlltoAll = [](const void*, void*, size_t, ncclDataType_t type, ncclComm_t comm,
                      cudaStream_t) { return fake_nccl->message("AlltoAll", 0, comm, type); };
  t.ncclAllReduce = [](const void*, void*, size_t, ncclDataType_t type, ncclRedOp_t,
                       ncclComm_t comm,
                       cudaStream_t) { return fake_nccl->message("AllReduce", 0, comm, type); };
  t.ncclGather = [](const void*, void*, size_t, ncclDataType_t type, int root, ncclComm_t comm,
                    cudaStream_t) { return fake_nccl->message("Gather", root, comm, type); };
  t.ncclScatter = [](const void*, void*, size_t, ncclDataType_t type, int root, ncclComm_t comm,
                     cudaStream_t) { return fake_nccl->message("Scatter", root, comm, type); };
}

inline NcclLibrary fake_library() {
  NcclLibrary t;
  add_fake_traffic(t);
  t.ncclGetUniqueId = [](ncclUniqueId*) { return happened("GetUniqueId"), ncclSuccess; };
  t.ncclCommCount = [](ncclComm_t, int* count) { return *count = 4, ncclSuccess; };
  t.ncclCommInitRank = [](ncclComm_t* comm, int, ncclUniqueId, int) {
    return fake_nccl->create(comm);
  };
  t.ncclCommInitRankConfig = [](ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t*) {
    return fake_nccl->create(comm);
  };
  t.ncclCommSplit = [](ncclComm_t, int color, int, ncclComm_t* child, ncclConfig_t*) {
    if (color != NCCL_SPLIT_NOCOLOR) return fake_nccl->create(child);
    happened("create none");
    *child = nullptr;
    return ncclSuccess;
  };
  t.ncclCommInitRankScalable = [](ncclComm_t* comm, int, int, int, ncclUniqueId*, ncclConfig_t*) {
    return fake_nccl->create(comm);
  };
  t.ncclCommInitAll = [](ncclComm_t* comms, int, const int*) { return fake_nccl->create(comms); };
  t.ncclCommShrink = [](ncclComm_t, int*, int, ncclComm_t* child, ncclConfig_t*, int) {
    return fake_nccl->create(child);
  };
  t.ncclCommGetUniqueId = [](ncclComm_t comm, ncclUniqueId*) {
    return happened("GetUniqueId of " + name(comm)), ncclSuccess;
  };
  t.ncclCommGrow = [](ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t* grown, ncclConfig_t*) {
    return fake_nccl->create(grown);
  };
  t.ncclCommSuspend = [](ncclComm_t comm, int) {
    return happened("Suspend " + name(comm)), ncclSuccess;
  };
  t.ncclCommResume = [](ncclComm_t comm) { return happened("Resume " + name(comm)), ncclSuccess; };
  t.ncclCommUserRank = [](ncclComm_t, int* rank) { return *rank = 1, ncclSuccess; };
  t.ncclCommCuDevice = [](ncclComm_t, int* device) { return *device = 0, ncclSuccess; };
  t.ncclCommFinalize = [](ncclComm_t comm) {
    return happened("Finalize " + name(comm)), ncclSuccess;
  };
  t.ncclCommDestroy = [](ncclComm_t comm) {
    return happened("Destroy " + name(comm)), ncclSuccess;
  };
  t.ncclCommAbort = [](ncclComm_t comm) { return happened("Abort " + name(comm)), ncclSuccess; };
  t.ncclCommRevoke = [](ncclComm_t comm, int flags) {
    happened("Revoke " + name(comm));
    return flags == 0 ? ncclSuccess : ncclInvalidArgument;
  };
  t.ncclCommGetAsyncError = [](ncclComm_t comm, ncclResult_t* state) {
    return *state = fake_nccl->states[comm], ncclSuccess;
  };
  t.ncclGetLastError = [](ncclComm_t) { return fake_nccl->last_error.c_str(); };
  return t;
}

/// A communicator of four ranks, seen from rank 1.
class FakeCommunicator final : public comm::Communicator {
 public:
  FakeCommunicator(std::string label, uint64_t order, bool taken_over = true)
      : label_(std::move(label)), order_(order), taken_over_(taken_over) {}
  ~FakeCommunicator() override {
    if (!destroyed_) happened("freed " + label_);
  }
  int rank() const override { return 1; }
  int ranks() const override { return 4; }
  uint64_t order() const override { return order_; }
  /// Never looked into: FakeEngines turns it back.
  exchange::Engine* engine() override {
    return taken_over_ ? reinterpret_cast<exchange::Engine*>(this) : nullptr;
  }
  void destroy() override {
    may_leave.wait(false);
    destroyed_ = true;
    happened("destroyed " + label_);
  }
  void let_leave() {
    may_leave = true;
    may_leave.notify_all();
  }
  void stop() override { happened("stopped " + label_); }

  const std::string& label() const { return label_; }
  Status error, launch_result, streams_result;
  std::atomic<bool> may_leave{true};  ///< false: farewells wait

 private:
  std::string label_;
  uint64_t order_;
  bool taken_over_;
  bool destroyed_ = false;
};

struct Launch {
  std::string label;
  exchange::Exchange exchange;
  std::vector<CUstream> streams;
};

class FakeEngines final : public EngineCalls {
 public:
  static FakeCommunicator& of(const exchange::Engine& engine) {
    return *reinterpret_cast<FakeCommunicator*>(const_cast<exchange::Engine*>(&engine));
  }
  Status launch(exchange::Engine& engine, const exchange::Exchange& exchange,
                std::span<const CUstream> streams) const override {
    happened("launch " + of(engine).label());
    launches.push_back({of(engine).label(), exchange, {streams.begin(), streams.end()}});
    return of(engine).launch_result;
  }
  Status check_streams(const exchange::Engine& engine, std::span<const CUstream>) const override {
    return of(engine).streams_result;
  }
  bool may_use(const exchange::Engine&, const void* memory) const override {
    return memory != foreign;
  }
  Status begin_outside(exchange::Engine& engine, std::span<const CUstream> streams) const override {
    return place("before", engine, streams);
  }
  Status end_outside(exchange::Engine& engine, std::span<const CUstream> streams) const override {
    return place("after", engine, streams);
  }
  Status error(const exchange::Engine& engine) const override { return of(engine).error; }
  Status farewell(exchange::Engine& engine) const override {
    happened("farewell " + of(engine).label());
    of(engine).may_leave.wait(false);
    return of(engine).error;
  }
  mutable std::vector<Launch> launches;
  const void* foreign = nullptr;  ///< memory of which the GPU knows nothing

 private:
  static Status place(const char* what, const exchange::Engine& engine,
                      std::span<const CUstream> streams) {
    std::string text = std::string(what) + " " + of(engine).label() + " on";
    for (const CUstream s : streams) text += " " + std::to_string(reinterpret_cast<uintptr_t>(s));
    happened(text);
    return {};
  }
};

class FakeJoining final : public comm::Joining {
 public:
  std::shared_ptr<comm::Communicator> wait() override {
    happened("joined");
    return std::exchange(communicator, nullptr);
  }
  bool done() const override { return finished; }
  std::shared_ptr<FakeCommunicator> communicator;
  bool finished = true;
};

class FakeManager final : public comm::Manager {
 public:
  bool enabled() const override { return true; }
  void mark(ncclUniqueId*) override { happened("mark"); }
  std::shared_ptr<comm::Joining> join(std::span<const ncclUniqueId> ids, int, int) override {
    happened(ids.size() == 1 ? "join" : "join by " + std::to_string(ids.size()) + " ids");
    return std::exchange(next, nullptr);
  }
  std::shared_ptr<comm::Joining> join_split(ncclComm_t parent, int, int) override {
    happened("join split of " + name(parent));
    return std::exchange(next, nullptr);
  }
  std::shared_ptr<comm::Joining> join_shrink(ncclComm_t parent,
                                             std::span<const int> excluded) override {
    happened("join " + name(parent) + " without " + std::to_string(excluded.size()));
    return std::exchange(next, nullptr);
  }
  std::shared_ptr<comm::Joining> join_grow(ncclComm_t parent, int ranks) override {
    happened("join " + name(parent) + " grown to " + std::to_string(ranks));
    return std::exchange(next, nullptr);
  }
  void mark_growth(ncclComm_t parent, ncclUniqueId*) override {
    happened("mark growth of " + name(parent));
  }
  bool adopt(ncclComm_t comm, const Stranger& stranger) override {
    happened("adopt " + name(comm) + " of " + std::to_string(stranger.ranks) + " ranks, hash " +
             std::to_string(stranger.hash));
    return false;
  }
  void bind(ncclComm_t comm, std::shared_ptr<comm::Communicator> communicator) override {
    happened("bind " + name(comm));
    known[comm] = std::move(communicator);
  }
  std::shared_ptr<comm::Communicator> find(ncclComm_t comm) override {
    const auto found = known.find(comm);
    return found == known.end() ? nullptr : found->second;
  }
  std::shared_ptr<comm::Communicator> unbind(ncclComm_t comm) override {
    auto found = find(comm);
    if (known.erase(comm) > 0) happened("unbind " + name(comm));
    return found;
  }
  std::shared_ptr<comm::Joining> next;
  std::map<ncclComm_t, std::shared_ptr<comm::Communicator>> known;
};

class InterceptTest : public testing::Test {
 protected:
  InterceptTest() {
    events.clear();
    fake_nccl = &nccl_;
  }
  std::shared_ptr<FakeCommunicator> add(int number, std::string label, uint64_t order,
                                        bool taken_over = true) {
    auto communicator = std::make_shared<FakeCommunicator>(std::move(label), order, taken_over);
    manager_.known[handle(number)] = communicator;
    return communicator;
  }
  /// What happened since the last look.
  static std::vector<std::string> taken() { return take_events(); }

  FakeNccl nccl_;
  NcclLibrary library_ = fake_library();
  FakeManager manager_;
  FakeEngines engines_;
  Strangers strangers_;
  Runtime runtime_{library_, manager_, engines_, std::nullopt, false, strangers_};
  Group group_{runtime_};
  Life life_{runtime_, group_};
  std::byte memory_[1024] = {};
};

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

}  // namespace railyard::intercept
