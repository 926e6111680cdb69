// SPDX-License-Identifier: Apache-2.0
//
// What a carrier needs from a network: put cells into the landing memory of another carrier and
// hand credits back to it.
//
//   carrier A                                         carrier B (relay)
//   post_cell(link, tag, staging range, …)  ------>   Receiver::on_cell(tag)
//   Receiver::on_credit(tag)                <------   post_credit(link, tag)
//
// Tags are 31-bit names chosen by the carrier that *receives* them; to the transport they mean
// nothing, except that the receiver of a cell can be asked where the cell of that tag belongs.
//
// A link joins two carriers (process and GPU), serves all their communicators in both directions
// and is made at the first post to it. Cells and credits of one link may arrive in any order.
//
// Thread rules: construction, listen(), address() and destruction by the owner; everything else is
// thread-bound to the carrier's thread, which also receives every Receiver call, always from
// within progress(). Nothing here blocks and nothing spins.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace railyard::transport {

/// Names one link at one carrier. Never reused within a carrier.
enum class LinkId : uint32_t {};

inline constexpr uint32_t kMaxTag = (1U << 31) - 1;

/// Memory that a transport reads cells from (staging) or that peers put cells into (landing).
/// It is exposed once and stays valid, at the same addresses, until the transport is destroyed.
struct Area {
  std::byte* host = nullptr;  ///< CPU address, or null for GPU memory the CPU cannot reach
  uint64_t device = 0;        ///< GPU address (CUdeviceptr), 0 if there is none
  uint64_t bytes = 0;
  int dmabuf_fd = -1;  ///< for GPU memory: its dma-buf, if the driver exports one
};

/// How another carrier reaches this one: opaque bytes that travel in the join record. They hold
/// the secret by which connections prove themselves, so they must not be logged.
using Address = std::vector<std::byte>;

/// One cell on its way out. `bytes` starts at `staging_offset` of the staging area, header
/// included, and lands at `landing_offset` of the peer's landing area.
struct Cell {
  uint32_t tag = 0;
  uint64_t staging_offset = 0;
  uint64_t landing_offset = 0;
  uint32_t bytes = 0;
};

/// The carrier's side of the contract.
class Receiver {
 public:
  virtual ~Receiver() = default;
  /// Where in the landing area the cell of `tag` belongs, for transports whose sender cannot place
  /// it itself. Empty: no such cell is expected on this link; the transport reads the payload and
  /// drops it.
  virtual std::span<std::byte> landing(LinkId link, uint32_t tag) = 0;
  /// The cell is in landing memory, visible to the CPU and to every GPU of the node.
  virtual void on_cell(LinkId link, uint32_t tag) = 0;
  /// The peer has emptied a slot.
  virtual void on_credit(LinkId link, uint32_t tag) = 0;
  /// The link is gone, for good and in both directions. Called once per link; posts to it are
  /// dropped from then on. The message names the peer and the remedy.
  virtual void on_link_down(LinkId link, const Status& why) = 0;
};

struct Counters {
  uint64_t cells_sent = 0, cell_bytes_sent = 0;  ///< handed to the network, headers included
  uint64_t cells_received = 0;
  uint64_t credits_sent = 0, credits_received = 0;
  uint64_t cells_dropped = 0;  ///< received for a tag nobody expected
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;
  /// For the log line of a communicator: devices, landing mode and why not a better one.
  virtual std::string describe() const = 0;

  /// Makes this carrier reachable. Call once, before address().
  virtual Status listen(const Area& staging, const Area& landing) = 0;
  virtual const Address& address() const = 0;

  /// A link to the carrier behind `peer`; the same carrier always yields the same link while it is
  /// open. `name` says who that is in messages ("rank 5 on node b"). Each open() is matched by one
  /// close(). Nothing is sent before the first post.
  virtual Result<LinkId> open(const Address& peer, const std::string& name) = 0;
  /// The last close() of a link sends what was posted, then a goodbye; busy() until then. To the
  /// peer that is no error, unless it posts a cell afterwards: then its link goes down.
  virtual void close(LinkId link) = 0;

  /// Queues a cell. The staging range must stay untouched until a credit for it has come back.
  virtual void post_cell(LinkId link, const Cell& cell) = 0;
  virtual void post_credit(LinkId link, uint32_t tag) = 0;

  /// Does all that can be done without blocking. True if anything moved.
  virtual bool progress(Receiver& receiver) = 0;
  /// Readable (epoll) when progress() has something to do, including writing what a full socket
  /// or queue refused before.
  virtual int event_fd() const = 0;
  /// Whether posted cells or credits have not yet been handed to the network. While busy, a
  /// carrier that may spin calls progress() without waiting.
  virtual bool busy() const = 0;

  virtual Counters counters() const = 0;
};

}  // namespace railyard::transport
