// SPDX-License-Identifier: Apache-2.0
//
// Waking those who wait in the node segment: kernels on the host sleep on a Doorbell, carriers
// block in epoll on the eventfd of a Bell. Host code only; processes and threads alike.
//
// Whoever waits looks at the words he waits for after announcing himself, whoever publishes looks
// for sleepers after publishing, so one of the two always sees the other: at a Bell because both
// exchange the same word, at a Doorbell because all four steps are sequentially consistent.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include <climits>

#include "kernels/layout.h"

namespace railyard::kernels {

/// Tells the kernels of a rank that something was published for them.
inline void notify(Doorbell* doorbell) {
  std::atomic_ref(doorbell->value).fetch_add(1);
  if (std::atomic_ref(doorbell->sleepers).load() == 0) return;
  syscall(SYS_futex, &doorbell->value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline uint32_t publications(Doorbell* doorbell) {
  return std::atomic_ref(doorbell->value).load(std::memory_order_acquire);
}

/// Returns once publications() differs from `seen`; may return early.
inline void sleep(Doorbell* doorbell, uint32_t seen) {
  std::atomic_ref(doorbell->sleepers).fetch_add(1);
  syscall(SYS_futex, &doorbell->value, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  std::atomic_ref(doorbell->sleepers).fetch_sub(1);
}

/// Wakes a carrier that blocks or is about to.
inline void ring(const Bell& bell) {
  if (bell.sleeping == nullptr) return;
  if (std::atomic_ref(*bell.sleeping).exchange(0, std::memory_order_acq_rel) == 0) return;
  const uint64_t one = 1;
  // An eventfd at its limit is readable already, so a refused write loses nothing.
  [[maybe_unused]] const ssize_t written = write(bell.fd, &one, sizeof one);
}

/// The carrier's half: announce, then look at everything once more, then block.
inline void announce_sleep(uint32_t* sleeping) {
  std::atomic_ref(*sleeping).exchange(1, std::memory_order_acq_rel);
}

}  // namespace railyard::kernels
