// SPDX-License-Identifier: Apache-2.0
//
// Exchanges in CUDA graphs. A captured exchange is two nodes, a host function that tells the
// carrier and then the kernel, and a descriptor that lives as long as the graph:
//
//   find(streams) --> keep(graph, …) --> nodes of replay() and of the kernel --> complete()
//                                            … replays …
//                     the graph and all that was instantiated from it are gone --> take_returned()
//
// The graph owns a user object for each exchange. Its destructor runs on a thread of the driver's
// that must not call CUDA: it only puts the descriptor on a list.
//
// Thread rules: find(), keep() and take_returned() by one thread at a time, the rest is
// thread-safe. Graphs may outlive a Captures, but neither the carrier nor the channel.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/driver.h"
#include "exchange/carrier.h"
#include "exchange/channel.h"

namespace railyard::exchange {

/// What streams are being captured into.
struct Capture {
  CUgraph graph = nullptr;  ///< null: they are not
  cuuint64_t id = 0;        ///< never used twice
};

/// What the streams are being captured into; kInvalidUsage if that is not the same for all.
Result<Capture> find_capture(const device::Driver& driver, std::span<const CUstream> streams);

class Captures {
 public:
  explicit Captures(const device::Driver& driver);
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  /// A captured exchange; the graph's.
  struct Entry;
  /// Ties a descriptor to the graph. Its block comes back with take_returned() once the graph has
  /// gone, or soon if this fails.
  Result<Entry*> keep(CUgraph graph, std::byte* block, Channel& channel, Carrier& carrier);
  /// The kernel has been captured, too. Before that replay() does nothing.
  static void complete(Entry& entry);
  /// Host function, on each replay before the kernel.
  static void replay(void* entry);
  /// Blocks whose graphs have gone since the last call.
  std::vector<std::byte*> take_returned();

  /// Whether there still is a graph.
  bool any() const;
  /// Waits until there is none, or until abandon().
  void wait() const;
  void abandon();

 private:
  struct Ledger;
  static void forget(void* entry);

  const device::Driver& driver_;
  std::shared_ptr<Ledger> ledger_;  ///< the graphs', too
};

}  // namespace railyard::exchange
