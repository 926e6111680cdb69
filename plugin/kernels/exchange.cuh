// SPDX-License-Identifier: Apache-2.0
//
// The exchange kernel: packs the messages this rank sends into slots and pulls those it receives
// out of them, until all messages of one exchange are done. One source for GPU and CPU; what
// differs is in port.h.
//
// Cells are striped over blocks: cell s of a flow belongs to block s mod blocks. In a block every
// thread polls flows of its own and lists those that can move; then the whole block moves the
// listed cells one after another. So no flow ever waits for another.
#pragma once

#include "kernels/port.h"

namespace railyard::kernels {

inline constexpr uint32_t kMaxReady = 64;

struct BlockState {
  uint32_t ready[kMaxReady];  ///< flows that can move, by index into ExchangeWork::flows
  uint32_t ready_count;
  uint32_t remaining;  ///< flows of this block not yet done
  uint32_t seen;       ///< publications before polling
  uint32_t leave;      ///< the communicator was aborted
  uint32_t last;       ///< this block finished last
};

RY_DEVICE uint64_t cells_of(uint64_t bytes, uint64_t cell_bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / cell_bytes + 1;
}

class ExchangeBlock {
 public:
  RY_DEVICE ExchangeBlock(const CommTable& table, const ExchangeWork& work)
      : table_(table),
        work_(work),
        state_(port::block_storage<BlockState>()),
        lanes_(table.lanes + uint64_t{port::block()} * 2 * table.ranks),
        flows_(work.sends + work.recvs) {}

  RY_DEVICE void run() {
    start();
    copy_to_self();
    while (look()) {
      const uint32_t count = state_.ready_count < kMaxReady ? state_.ready_count : kMaxReady;
      for (uint32_t i = 0; i < count; ++i) move(state_.ready[i]);
      if (count == 0 && leader() && state_.remaining != 0) {
        port::wait(table_.doorbell, state_.seen);
      }
    }
    finish();
  }

 private:
  RY_DEVICE static bool leader() { return port::thread() == 0; }
  RY_DEVICE bool is_send(uint32_t flow) const { return flow < work_.sends; }
  RY_DEVICE uint32_t slot_of(uint64_t sequence) const {
    return static_cast<uint32_t>(sequence % table_.slots);
  }

  /// Skips messages that `lane.cell` has run past.
  RY_DEVICE void settle(Lane& lane, const FlowWork& flow) const {
    while (lane.message < flow.messages) {
      const uint64_t cells =
          cells_of(work_.messages[flow.first + lane.message].bytes, table_.cell_bytes);
      if (lane.cell < cells) return;
      lane.cell -= cells;
      ++lane.message;
    }
  }

  RY_DEVICE void start() {
    if (leader()) state_.remaining = 0;
    port::barrier();
    for (uint32_t i = port::thread(); i < flows_; i += port::threads()) {
      const FlowWork& flow = work_.flows[i];
      const uint64_t next = (is_send(i) ? table_.send_next : table_.recv_next)[flow.peer];
      const uint64_t ahead =
          (port::block() + port::blocks() - next % port::blocks()) % port::blocks();
      lanes_[i] = Lane{next + ahead, ahead, 0, 0};
      settle(lanes_[i], flow);
      if (lanes_[i].message < flow.messages) port::fetch_add_in_block(&state_.remaining, 1);
    }
  }

  RY_DEVICE void copy_to_self() {
    uint64_t part = 0;
    for (uint32_t i = 0; i < work_.copies; ++i) {
      const CopyWork& copy = work_.self[i];
      for (uint64_t at = 0; at < copy.bytes; at += table_.cell_bytes, ++part) {
        if (part % port::blocks() != port::block()) continue;
        const uint64_t left = copy.bytes - at;
        port::copy(copy.to + at, copy.from + at,
                   left < table_.cell_bytes ? left : table_.cell_bytes);
      }
      if (port::block() == 0) {
        moved_.self_bytes += copy.bytes;
        moved_.self_messages += 1;
      }
    }
  }

  /// Lists the flows that can move. False: nothing is left to do, or the communicator is aborted.
  RY_DEVICE bool look() {
    port::barrier();
    if (leader()) {
      state_.seen = port::publications(table_.doorbell);
      state_.leave = port::load_acquire(&table_.status->abort);
      state_.ready_count = 0;
    }
    port::barrier();
    if (state_.leave != 0 || state_.remaining == 0) return false;
    port::barrier();  // everyone has read `remaining` before anyone lowers it
    for (uint32_t i = port::thread(); i < flows_; i += port::threads()) poll(i);
    port::barrier();
    return true;
  }

  RY_DEVICE void poll(uint32_t i) {
    const FlowWork& flow = work_.flows[i];
    const Lane& lane = lanes_[i];
    if (lane.message == flow.messages) return;
    uint32_t* broken = (is_send(i) ? table_.send_broken : table_.recv_broken) + flow.peer;
    if (port::load_acquire(broken) != 0) return drop(i);
    const uint32_t slot = slot_of(lane.sequence);
    const uint64_t* word =
        is_send(i) ? table_.send[flow.peer].credit + slot : table_.recv[flow.peer].arrival + slot;
    const uint64_t value = port::load_acquire(word);
    if (value == kPoison) {
      break_flow(broken);
      report(Fault::kPeerFailed, i, 0, 0);
      return drop(i);
    }
    if (value != lane.sequence + (is_send(i) ? 0 : 1)) return;
    if (is_send(i)) port::take_back(word);
    const uint32_t place = port::fetch_add_in_block(&state_.ready_count, 1);
    if (place < kMaxReady) state_.ready[place] = i;
  }

  RY_DEVICE void drop(uint32_t i) {
    lanes_[i].message = work_.flows[i].messages;
    port::fetch_add_in_block(&state_.remaining, ~uint32_t{0});
  }

  /// Moves one cell; all threads of the block.
  RY_DEVICE void move(uint32_t i) {
    const FlowWork& flow = work_.flows[i];
    const Lane lane = lanes_[i];
    const MessageWork& message = work_.messages[flow.first + lane.message];
    const uint64_t offset = lane.cell * table_.cell_bytes;
    const uint64_t left = message.bytes - offset;
    const uint64_t bytes = left < table_.cell_bytes ? left : table_.cell_bytes;
    const uint32_t slot = slot_of(lane.sequence);
    const bool good = is_send(i) ? pack(flow.peer, slot, lane, message, offset, bytes)
                                 : pull(i, slot, lane, message, offset, bytes);
    if (!leader()) return;
    if (!good) return drop(i);
    lanes_[i].sequence += port::blocks();
    lanes_[i].cell += port::blocks();
    settle(lanes_[i], flow);
    if (lanes_[i].message == flow.messages) {
      port::fetch_add_in_block(&state_.remaining, ~uint32_t{0});
    }
  }

  RY_DEVICE bool pack(uint32_t peer, uint32_t slot, const Lane& lane, const MessageWork& message,
                      uint64_t offset, uint64_t bytes) {
    const SendFlow& flow = table_.send[peer];
    std::byte* cell = flow.cells + slot * table_.cell_stride;
    if (leader()) {
      *reinterpret_cast<CellHeader*>(cell) = CellHeader{lane.sequence, message.bytes};
    }
    port::copy(cell + sizeof(CellHeader), message.buffer + offset, bytes);
    port::barrier();
    if (!leader()) return true;
    port::hand_over(flow.credit + slot);
    if (flow.peer_arrival != nullptr) {
      port::store_release(flow.peer_arrival + slot, lane.sequence + 1);
      port::notify(flow.peer_doorbell);
    } else {
      push(table_.post, flow.ring_slot + slot, sizeof(CellHeader) + bytes);
      moved_.phase1_bytes += bytes;
      moved_.phase1_messages += lane.cell == 0 ? 1 : 0;
    }
    return true;
  }

  RY_DEVICE bool pull(uint32_t i, uint32_t slot, const Lane& lane, const MessageWork& message,
                      uint64_t offset, uint64_t bytes) {
    const RecvFlow& flow = table_.recv[work_.flows[i].peer];
    const std::byte* cell = flow.cells + slot * table_.cell_stride;
    const CellHeader header = *reinterpret_cast<const CellHeader*>(cell);
    if (header.message_bytes != message.bytes || header.sequence != lane.sequence) {
      if (leader()) {
        const bool size = header.sequence == lane.sequence;
        report(size ? Fault::kSizeMismatch : Fault::kSequence, i, header.message_bytes,
               message.bytes);
        give_up(work_.flows[i].peer, flow);
      }
      port::barrier();  // everyone has read the lane before it is dropped
      return false;
    }
    port::copy(message.buffer + offset, cell + sizeof(CellHeader), bytes);
    port::barrier();
    if (!leader()) return true;
    const uint64_t first = lane.cell == 0 ? 1 : 0;
    if (flow.peer_credit != nullptr) {
      port::store_release(flow.peer_credit + slot, lane.sequence + table_.slots);
      port::notify(flow.peer_doorbell);
      moved_.local_bytes += bytes;
      moved_.local_messages += first;
    } else {
      push(*flow.release, flow.ring_slot + slot, 0);
      moved_.phase2_bytes += bytes;
      moved_.phase2_messages += first;
    }
    return true;
  }

  /// Makes all blocks drop the flow, those that sleep too. False: somebody did so before.
  RY_DEVICE bool break_flow(uint32_t* broken) {
    if (port::exchange(broken, 1) != 0) return false;
    port::notify(table_.doorbell);
    return true;
  }

  /// Tells the source that nobody will pull from this flow again, so that it does not wait.
  RY_DEVICE void give_up(uint32_t peer, const RecvFlow& flow) {
    if (!break_flow(table_.recv_broken + peer)) return;
    if (flow.peer_credit == nullptr) return push(*flow.release, flow.ring_slot | kBrokenFlow, 0);
    for (uint32_t slot = 0; slot < table_.slots; ++slot) {
      port::store_release(flow.peer_credit + slot, kPoison);
    }
    port::notify(flow.peer_doorbell);
  }

  RY_DEVICE void report(Fault fault, uint32_t i, uint64_t sent, uint64_t expected) {
    if (port::exchange(table_.fault_claimed, 1) != 0) return;
    const uint32_t peer = work_.flows[i].peer;
    FaultRecord& record = table_.status->fault;
    record.source = is_send(i) ? table_.rank : peer;
    record.destination = is_send(i) ? peer : table_.rank;
    record.sent = sent;
    record.expected = expected;
    port::store_release(&record.fault, static_cast<uint32_t>(fault));
  }

  RY_DEVICE static void push(const Ring& ring, uint32_t slot, uint64_t bytes) {
    const uint64_t ticket = port::fetch_add(ring.tail, uint64_t{1});
    RingEntry& entry = ring.entries[ticket & ring.mask];
    entry.bytes = bytes;
    port::store_release(&entry.word, (ticket + 1) << 32 | slot);
    port::ring(ring.bell);
  }

  RY_DEVICE void finish() {
    if (leader()) {
      add(&table_.traffic->phase1_bytes, moved_.phase1_bytes);
      add(&table_.traffic->phase1_messages, moved_.phase1_messages);
      add(&table_.traffic->phase2_bytes, moved_.phase2_bytes);
      add(&table_.traffic->phase2_messages, moved_.phase2_messages);
      add(&table_.traffic->local_bytes, moved_.local_bytes);
      add(&table_.traffic->local_messages, moved_.local_messages);
      add(&table_.traffic->self_bytes, moved_.self_bytes);
      add(&table_.traffic->self_messages, moved_.self_messages);
    }
    port::barrier();
    if (leader()) {
      state_.last = port::fetch_add(table_.blocks_done, 1U) == port::blocks() - 1 ? 1 : 0;
    }
    port::barrier();
    if (state_.last == 0) return;
    for (uint32_t i = port::thread(); i < flows_; i += port::threads()) advance(i);
    port::barrier();
    if (!leader()) return;
    *table_.blocks_done = 0;
    table_.status->traffic = *table_.traffic;
    port::store_release(&table_.status->exchanges, table_.status->exchanges + 1);
    port::store_release(work_.done, uint64_t{1});
    port::ring(table_.post.bell);
  }

  RY_DEVICE static void add(uint64_t* total, uint64_t amount) {
    if (amount != 0) port::fetch_add(total, amount);
  }

  RY_DEVICE void advance(uint32_t i) {
    const FlowWork& flow = work_.flows[i];
    uint64_t cells = 0;
    for (uint32_t m = 0; m < flow.messages; ++m) {
      cells += cells_of(work_.messages[flow.first + m].bytes, table_.cell_bytes);
    }
    (is_send(i) ? table_.send_next : table_.recv_next)[flow.peer] += cells;
  }

  const CommTable& table_;
  const ExchangeWork& work_;
  BlockState& state_;
  Lane* lanes_;
  uint32_t flows_;
  Traffic moved_ = {};
};

RY_DEVICE void exchange(const CommTable* table, const ExchangeWork* work) {
  ExchangeBlock(*table, *work).run();
}

}  // namespace railyard::kernels
