// SPDX-License-Identifier: Apache-2.0
//
// An all-to-all exchange on a cluster, as plain NCCL, NCCL that relays at the sender, and railyard
// do it. Ways follow from the library's own topology and relays, cells and windows from its slot
// plan. Times in microseconds, rates in 10^9 bits per second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "exchange/slots.h"
#include "simulator.h"
#include "topology/topology.h"

namespace scale {

enum class System { kPlain, kSenderRelay, kRailyard };
const char* name_of(System system);

struct Parameters {
  int nodes = 8, gpus = 8;
  int oversubscription = 1;  ///< of the spine; 0: there is none
  uint64_t bytes_per_pair = 1 << 20;
  double link_gbps = 400, nvlink_gbps = 3600;
  double delay_us = 2;    ///< of each link
  double cell_us = 0;     ///< what a cell takes at its NIC besides its bytes
  double start_us = 10;   ///< before the first byte moves
  double efficiency = 1;  ///< of a link's rate that is left for payload
  uint32_t buffer_mb = 64;
};

/// What a rank needs for it.
struct Needs {
  uint64_t staging_bytes = 0, landing_bytes = 0;
  uint32_t slots_per_flow = 0;
  uint64_t cell_bytes = 0;
  std::string trouble;     ///< why there is no slot plan; empty: there is one
  int links = 0;           ///< most other ranks that a rank's carrier is linked to
  int setup_messages = 0;  ///< of the join, that a rank sends or gets
};

class Cluster {
 public:
  static railyard::Result<Cluster> make(const Parameters& parameters);

  const Needs& needs() const { return needs_; }
  /// From the busiest link alone; all nodes are alike, so one is looked at. nullopt: there is no
  /// way between some ranks.
  std::optional<double> bound(System system) const;
  /// Cell by cell. For small clusters: it takes time and memory by the cell.
  std::optional<double> simulate(System system) const;

 private:
  /// Links that cells from one rank to another go over, as kind and position.
  enum class Kind { kNvlink, kEgress, kIngress, kUp, kDown };
  struct Hop {
    Kind kind;
    int position;  ///< rank, or rail
  };

  Cluster(const Parameters& parameters, railyard::topology::Topology topology);
  std::optional<std::vector<Hop>> way(System system, int from, int to) const;
  bool across(int from, int to, std::vector<Hop>* hops) const;
  Link link(Kind kind) const;
  void find_needs();

  Parameters parameters_;
  railyard::topology::Topology topology_;
  Needs needs_;
};

}  // namespace scale
