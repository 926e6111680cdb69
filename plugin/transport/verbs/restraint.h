// SPDX-License-Identifier: Apache-2.0
//
// When to ask the NICs for events. A caller that sleeps between calls of progress() needs them;
// for one that spins each costs system calls and an interrupt for nothing. Callers do not say
// which they are, so it is learnt: many fast calls in vain between two completions are spinning.
//
//   armed:   every NIC raises an event at its next completion
//   unarmed: the transport's descriptor is kept readable instead, so that a caller who goes to
//            sleep all the same comes back at once; after `patience` calls in vain, armed again
//
// Pure but for the clock. Thread-bound.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace railyard::verbs {

class Restraint {
 public:
  bool armed() const { return armed_; }

  /// A caller that posts between calls is not spinning.
  void posted() { calls_ = 0; }

  /// One call of progress() found something to do, or not.
  void progressed(bool moved) {
    calls_ = moved ? 0 : calls_ + 1;
    if (armed_ && calls_ == kEnough) spinning_ = fast();
    if (armed_ && calls_ == 1) since_ = Clock::now();
    if (!armed_ || !moved) return;
    patience_ = spinning_ ? std::clamp(patience_ * 2, kLeastPatience, kMostPatience) : 0;
    armed_ = patience_ == 0;
    spinning_ = false;
  }
  bool should_arm() const { return armed_ || calls_ > patience_; }
  void armed_now() {
    if (armed_) return;
    armed_ = true;
    calls_ = 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kEnough = 64, kLeastPatience = 64, kMostPatience = 1 << 15;
  static constexpr auto kFastCall = std::chrono::microseconds(10);

  bool fast() const { return Clock::now() - since_ < kFastCall * kEnough; }

  bool armed_ = true;
  bool spinning_ = false;  ///< the last calls in vain came fast
  uint32_t calls_ = 0;     ///< in vain, one after the other
  uint32_t patience_ = 0;
  Clock::time_point since_{};
};

}  // namespace railyard::verbs
