// SPDX-License-Identifier: Apache-2.0
//
// Joining from end to end on emulated GPUs: managers that act as processes of one or more ranks.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "base/log.h"
#include "comm/make_manager.h"
#include "device/driver.h"

namespace railyard::comm {
using testing::HasSubstr;

using Outcome = std::shared_ptr<Communicator>;

inline Environment usual(Environment more = {}) {
  Environment environment = {{"RAILYARD_TRANSPORT", "tcp"},
                             {"RAILYARD_BUFFER_MB", "2"},
                             {"RAILYARD_JOIN_S", "30"},
                             {"RAILYARD_DEBUG", "info"},
                             {"NCCL_SOCKET_IFNAME", "lo"}};
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

/// Managers live as long as the process; remembered, so that leak checkers see that on purpose.
inline Manager& manager_for(const Environment& environment) {
  static auto* const managers = new std::vector<Manager*>;
  managers->push_back(&make_manager(environment));
  return *managers->back();
}

inline ncclUniqueId blank_id() {
  ncclUniqueId id;
  std::memset(id.internal, 0, sizeof id.internal);
  std::memset(id.internal, 'x', 64);
  return id;
}

/// Runs `body` with the primary context of a device current.
inline void on_device(int device, const std::function<void()>& body) {
  const device::Driver& driver = **device::Driver::get();
  CUdevice handle = 0;
  CUcontext context = nullptr;
  ASSERT_EQ(driver.cuDeviceGet(&handle, device), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuDevicePrimaryCtxRetain(&context, handle), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuCtxPushCurrent(context), CUDA_SUCCESS);
  body();
  ASSERT_EQ(driver.cuCtxPopCurrent(&context), CUDA_SUCCESS);
}

inline ncclComm_t handle_of(int rank) {
  return reinterpret_cast<ncclComm_t>(static_cast<uintptr_t>(0x1000 + rank));
}

class Joins : public testing::Test {
 protected:
  void SetUp() override {
    if (!device::Driver::get().ok()) GTEST_SKIP() << device::Driver::get().status().message();
  }

  /// Rank r belongs to managers[r] and uses device r.
  std::vector<Outcome> join_all(const std::vector<Manager*>& managers, const ncclUniqueId& id) {
    std::vector<std::shared_ptr<Joining>> joinings;
    const int ranks = static_cast<int>(managers.size());
    for (int rank = 0; rank < ranks; ++rank) {
      on_device(rank, [&] {
        joinings.push_back(
            managers[static_cast<size_t>(rank)]->join(std::span(&id, 1), ranks, rank));
      });
    }
    return outcomes(joinings);
  }
  static std::vector<Outcome> outcomes(const std::vector<std::shared_ptr<Joining>>& joinings) {
    std::vector<Outcome> outcomes;
    for (const auto& joining : joinings) {
      outcomes.push_back(joining == nullptr ? nullptr : joining->wait());
      EXPECT_TRUE(joining == nullptr || joining->done());
    }
    return outcomes;
  }
  static int taken_over(const std::vector<Outcome>& outcomes) {
    int count = 0;
    for (const Outcome& outcome : outcomes) {
      if (outcome != nullptr && outcome->engine() != nullptr) ++count;
    }
    return count;
  }
  static void destroy_all(const std::vector<Outcome>& outcomes) {
    std::vector<std::thread> threads;
    for (const Outcome& outcome : outcomes) {
      if (outcome != nullptr) threads.emplace_back([outcome] { outcome->destroy(); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  /// Managers that act as processes of one rank each, on the hosts named by letters.
  static std::vector<Manager*> processes(const std::string& hosts, const Environment& more = {}) {
    std::vector<Manager*> managers;
    for (const char host : hosts) {
      Environment environment = usual(more);
      environment["NCCL_HOSTID"] = std::string(1, host);
      managers.push_back(&manager_for(environment));
    }
    return managers;
  }
};

}  // namespace railyard::comm
