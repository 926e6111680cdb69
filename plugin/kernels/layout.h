// SPDX-License-Identifier: Apache-2.0
//
// The memory in which exchange kernel and carriers meet. Everything here is read by both the GPU
// and the host, so it is plain data of fixed layout. Pointers are addresses valid for the kernel
// of the rank that owns the structure.
//
// One flow (src, dst) owns `slots` cells of memory. Cell s of a flow uses slot s mod slots, and
// two words per slot, kept in the node segment, say who may touch it:
//
//   credit[slot]  == s        the source may pack cell s into the slot
//   arrival[slot] == s + 1    cell s is in the slot, the destination may pull it
//
// Initially credit[slot] = slot and arrival[slot] = 0. Pulling cell s makes credit[slot] s + slots.
// The value kPoison in either means that the flow is broken for good.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railyard::kernels {

inline constexpr uint64_t kPoison = ~uint64_t{0};

/// First bytes of every cell; the payload follows at once.
struct CellHeader {
  uint64_t sequence;       ///< of the cell in its flow, from 0
  uint64_t message_bytes;  ///< of the whole message this cell is part of
};
static_assert(sizeof(CellHeader) == 16);

/// Where a kernel on the host sleeps until somebody publishes something for its rank. Unused by
/// kernels on a GPU, which poll.
struct Doorbell {
  uint32_t value;  ///< grows with every publication; futex word
  uint32_t sleepers;
  uint64_t pad[7];
};
static_assert(sizeof(Doorbell) == 64);

/// How to wake a carrier: an eventfd, written only if the carrier says it is about to block.
struct Bell {
  uint32_t* sleeping;  ///< in the node segment, 1 while the carrier blocks
  int32_t fd;          ///< eventfd, numbered as in the process that runs the kernel; -1: none
  int32_t pad;
};

/// One entry of a ring from a kernel to a carrier. `word` is (ticket + 1) << 32 | slot index and is
/// written last; a ring has room for every slot it can name, so it is never full.
struct RingEntry {
  uint64_t word;
  uint64_t bytes;
};
/// Set in the slot index of a release: the destination gave the flow up.
inline constexpr uint32_t kBrokenFlow = 1U << 31;

struct Ring {
  RingEntry* entries;
  uint64_t* tail;  ///< tickets drawn, in device memory of the producer
  uint64_t mask;   ///< entries - 1
  Bell bell;       ///< of the carrier that reads it
};

/// A rank's view of what it sends to one peer.
struct SendFlow {
  uint64_t* credit;         ///< [slots], words of this rank
  std::byte* cells;         ///< slot 0 in this rank's staging memory
  uint64_t* peer_arrival;   ///< [slots], words of a destination in the same node; else null
  Doorbell* peer_doorbell;  ///< with peer_arrival
  uint32_t ring_slot;       ///< name of slot 0 in the post ring
  uint32_t pad;
};

/// A rank's view of what it receives from one peer.
struct RecvFlow {
  uint64_t* arrival;        ///< [slots], words of this rank
  const std::byte* cells;   ///< slot 0: relay's landing memory, or the source's staging memory
  uint64_t* peer_credit;    ///< [slots], words of a source in the same node; else null
  Doorbell* peer_doorbell;  ///< with peer_credit
  const Ring* release;      ///< ring to the relay's carrier; null for a source in the same node
  uint32_t ring_slot;       ///< name of slot 0 in that ring
  uint32_t pad;
};

enum class Fault : uint32_t {
  kNone,
  kSizeMismatch,  ///< sent and expected bytes differ
  kSequence,      ///< a cell that is not the one expected: corrupted or stale memory
  kPeerFailed,    ///< the other end or the way to it was given up
};

/// The first thing that went wrong in a kernel of one rank. `fault` is written last.
struct FaultRecord {
  uint32_t fault;  ///< Fault
  uint32_t source, destination;
  uint32_t pad;
  uint64_t sent, expected;
};

/// What the kernels of one rank have moved, payload bytes.
struct Traffic {
  uint64_t phase1_bytes, phase1_messages;  ///< packed for another node
  uint64_t phase2_bytes, phase2_messages;  ///< pulled from a relay
  uint64_t local_bytes, local_messages;    ///< pulled from a rank of the same node
  uint64_t self_bytes, self_messages;      ///< copied to oneself
};

/// Per rank, in the node segment.
struct RankStatus {
  uint32_t abort;  ///< 1: kernels leave at once
  uint32_t pad;
  FaultRecord fault;
  uint64_t exchanges;  ///< finished
  Traffic traffic;     ///< up to the last finished exchange
};

/// Position of one block in one flow.
struct Lane {
  uint64_t sequence;  ///< of the next cell
  uint64_t cell;      ///< its index in its message
  uint32_t message;   ///< index into the flow's messages; == messages: done
  uint32_t pad;
};

/// Constant for the life of a communicator; in device memory.
struct CommTable {
  uint32_t rank, ranks;
  uint32_t slots;  ///< per flow
  uint32_t pad;
  uint64_t cell_bytes;    ///< payload per cell
  uint64_t cell_stride;   ///< distance of two slots
  const SendFlow* send;   ///< [ranks]
  const RecvFlow* recv;   ///< [ranks]
  uint64_t* send_next;    ///< [ranks] cursors: sequence of the next cell to send …
  uint64_t* recv_next;    ///< [ranks] … and to receive
  uint32_t* send_broken;  ///< [ranks] 1: flow given up
  uint32_t* recv_broken;  ///< [ranks]
  Lane* lanes;            ///< [blocks][2 * ranks], scratch of the running kernel
  Traffic* traffic;       ///< running totals in device memory
  uint32_t* blocks_done;
  uint32_t* fault_claimed;  ///< 1: status->fault is taken
  Ring post;
  Doorbell* doorbell;  ///< of this rank
  RankStatus* status;  ///< of this rank
};

struct MessageWork {
  std::byte* buffer;  ///< never written for a send
  uint64_t bytes;
};

/// The messages of one flow in one exchange, in order.
struct FlowWork {
  uint32_t peer;
  uint32_t first;  ///< index into ExchangeWork::messages
  uint32_t messages;
  uint32_t pad;
};

struct CopyWork {
  const std::byte* from;
  std::byte* to;
  uint64_t bytes;
};

/// One exchange, in host memory mapped to the GPU.
struct ExchangeWork {
  uint32_t sends, recvs, copies;
  uint32_t pad;
  const FlowWork* flows;  ///< sends, then recvs
  const MessageWork* messages;
  const CopyWork* self;  ///< messages to oneself
  uint64_t* done;        ///< set to 1 when the exchange is over
};

/// Name of the kernel in its module: void(const CommTable*, const ExchangeWork*).
inline constexpr const char* kExchangeKernel = "railyard_exchange";
/// A module that also has a kernel of this name runs on the host: its kernels ring bells.
inline constexpr const char* kHostKernelMark = "railyard_runs_on_host";

}  // namespace railyard::kernels
