// SPDX-License-Identifier: Apache-2.0
#include "exchange/captures.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "exchange/descriptors.h"

namespace railyard::exchange {

struct Captures::Ledger {
  std::mutex mutex;  ///< guards all below
  std::condition_variable changed;
  size_t live = 0;  ///< exchanges whose graph exists
  bool abandoned = false;
  std::vector<std::byte*> returned;
};

struct Captures::Entry {
  Entry(std::shared_ptr<Ledger> l, std::byte* b, Channel& ch, Carrier& ca)
      : ledger(std::move(l)), block(b), channel(ch), carrier(ca) {}

  std::shared_ptr<Ledger> ledger;
  std::byte* block;
  Channel& channel;
  Carrier& carrier;
  std::atomic<bool> complete{false};
};

Result<Capture> find_capture(const device::Driver& driver, std::span<const CUstream> streams) {
  Capture first;
  for (size_t i = 0; i < streams.size(); ++i) {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    Capture capture;
    const Status status =
        driver.check(driver.cuStreamGetCaptureInfo(streams[i], &state, &capture.id, &capture.graph,
                                                   nullptr, nullptr),
                     "cuStreamGetCaptureInfo");
    if (!status.ok()) return status;
    if (state != CU_STREAM_CAPTURE_STATUS_ACTIVE) capture = {};
    if (i == 0) first = capture;
    if (capture.id == first.id) continue;
    return Status(Code::kInvalidUsage,
                  "the streams of one communicator in one group must either all be captured into "
                  "the same CUDA graph or none of them");
  }
  return first;
}

Captures::Captures(const device::Driver& driver)
    : driver_(driver), ledger_(std::make_shared<Ledger>()) {}

Result<Captures::Entry*> Captures::keep(CUgraph graph, std::byte* block, Channel& channel,
                                        Carrier& carrier) {
  Entry* const kept = new Entry(ledger_, block, channel, carrier);  // forget() ends it
  {
    std::lock_guard lock(ledger_->mutex);
    ++ledger_->live;
  }
  CUuserObject object = nullptr;
  Status status = driver_.check(driver_.cuUserObjectCreate(&object, kept, &Captures::forget, 1,
                                                           CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                                "cuUserObjectCreate");
  if (!status.ok()) {
    forget(kept);
    return status;
  }
  status =
      driver_.check(driver_.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
                    "cuGraphRetainUserObject");
  if (status.ok()) return kept;
  driver_.cuUserObjectRelease(object, 1);
  return status;
}

void Captures::complete(Entry& entry) { entry.complete.store(true, std::memory_order_release); }

void Captures::replay(void* data) {
  Entry& entry = *static_cast<Entry*>(data);
  if (!entry.complete.load(std::memory_order_acquire)) return;
  Descriptors::reopen(entry.block);
  entry.channel.launched();
  entry.carrier.wake();
}

void Captures::forget(void* data) {
  const std::unique_ptr<Entry> entry(static_cast<Entry*>(data));
  Ledger& ledger = *entry->ledger;
  std::lock_guard lock(ledger.mutex);
  ledger.returned.push_back(entry->block);
  --ledger.live;
  ledger.changed.notify_all();
}

std::vector<std::byte*> Captures::take_returned() {
  std::lock_guard lock(ledger_->mutex);
  return std::exchange(ledger_->returned, {});
}

bool Captures::any() const {
  std::lock_guard lock(ledger_->mutex);
  return ledger_->live > 0;
}

void Captures::wait() const {
  std::unique_lock lock(ledger_->mutex);
  ledger_->changed.wait(lock, [this] { return ledger_->live == 0 || ledger_->abandoned; });
}

void Captures::abandon() {
  std::lock_guard lock(ledger_->mutex);
  ledger_->abandoned = true;
  ledger_->changed.notify_all();
}

}  // namespace railyard::exchange
