// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_kernels.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/exchange.cuh"

namespace railyard::kernels {
namespace {

void exchange_entry(void** args) {
  exchange(*static_cast<const CommTable**>(args[0]), *static_cast<const ExchangeWork**>(args[1]));
}

void mark_entry(void**) {}

constexpr HostKernel kKernels[] = {
    {kExchangeKernel, 2, exchange_entry},
    {kHostKernelMark, 0, mark_entry},
};

/// Threads that run what they are given, as many at a time as there are tasks: threads of a block
/// wait for each other, so none may queue behind another.
class Crew {
 public:
  /// Never destroyed: kernels may still sleep when the process exits.
  static Crew& instance() {
    static Crew* crew = new Crew;
    return *crew;
  }

  void run(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ >= tasks_.size()) {
      wake_.notify_one();
    } else {
      std::thread([this] { work(); }).detach();
    }
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      while (tasks_.empty()) {
        ++idle_;
        wake_.wait(lock);
        --idle_;
      }
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0;
};

}  // namespace

std::span<const HostKernel> host_kernels() { return kKernels; }

void run_on_host(const HostKernel& kernel, uint32_t blocks, uint32_t threads_per_block,
                 void** args) {
  std::deque<port::BlockContext> shared;
  for (uint32_t b = 0; b < blocks; ++b) shared.emplace_back(threads_per_block);

  std::mutex mutex;
  std::condition_variable all_left;
  uint32_t running = blocks * threads_per_block - 1;
  const auto run_thread = [&](uint32_t block, uint32_t thread) {
    port::context = {block, blocks, thread, threads_per_block, &shared[block]};
    kernel.entry(args);
  };
  for (uint32_t i = 1; i < blocks * threads_per_block; ++i) {
    Crew::instance().run([&, i] {
      run_thread(i / threads_per_block, i % threads_per_block);
      std::lock_guard lock(mutex);
      if (--running == 0) all_left.notify_one();
    });
  }
  run_thread(0, 0);
  std::unique_lock lock(mutex);
  all_left.wait(lock, [&] { return running == 0; });
}

}  // namespace railyard::kernels
