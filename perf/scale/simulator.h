// SPDX-License-Identifier: Apache-2.0
//
// A network of links that cells travel over: event by event, each link first come first served. A
// cell is stored whole before it goes on. Times in microseconds. Pure.
//
//   Simulator network;
//   const int nic = network.add_link({12.5, 1.0});
//   network.add({{nic}, 1 << 20, 256 << 10, 0});
//   network.run();
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace scale {

struct Link {
  double bytes_per_us;
  double delay_us = 0;
  double cell_us = 0;  ///< what each cell takes besides its bytes
};

/// Bytes that go the same way, in cells.
struct Flow {
  std::vector<int> path;  ///< links in order, at least one
  uint64_t bytes = 0;
  uint64_t cell_bytes = 1;
  uint32_t window =
      0;  ///< cells that may be under way at a time; 0: all. A credit takes the path's delays.
};

class Simulator {
 public:
  int add_link(const Link& link);
  /// Flows send their cells in turn, those added first first.
  void add(Flow flow);
  /// When the last cell has arrived. Once per object.
  double run();

 private:
  struct Progress {
    uint64_t cells = 0, sent = 0;
  };
  uint64_t cell_size(size_t flow, uint64_t cell) const;

  std::vector<Link> links_;
  std::vector<Flow> flows_;
};

}  // namespace scale
