// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>

#include <atomic>

#include "base/unique_fd.h"

namespace railyard {
namespace {

std::atomic<uint32_t> generation{0};

}  // namespace

void close_in_children() {
  [[maybe_unused]] static const int once = pthread_atfork(nullptr, nullptr, [] {
    OwnedFds::close_all();
    generation.fetch_add(1, std::memory_order_relaxed);
  });
}

uint32_t fork_generation() { return generation.load(std::memory_order_relaxed); }

}  // namespace railyard
