// SPDX-License-Identifier: Apache-2.0
//
// Which NICs a GPU uses. Pure, from paths in sysfs; what reads sysfs is at the end.
//
// The NICs nearest to a GPU are shared out among the GPUs to which they are equally near: two GPUs
// and two NICs behind one switch get one NIC each, one GPU near two NICs gets both.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/verbs/options.h"

namespace railyard::verbs {

/// Where a device sits.
struct PciPlace {
  std::string path;  ///< components from the root down: "pci0000:15/0000:15:01.0/0000:16:00.0"
  int numa = -1;     ///< -1: unknown

  /// The last component: the bus id, or the name of a virtual device.
  std::string bus_id() const;
};

/// kSystem if either place is unknown.
Distance distance_between(const PciPlace& a, const PciPlace& b);

/// The GPU in question and all others of the node, itself included, in order of bus ids.
struct GpuPlaces {
  std::vector<PciPlace> gpus;
  int self = -1;             ///< index into gpus; -1: sysfs does not know it …
  int index = 0, count = 1;  ///< … then its place among the node's GPUs, each near every NIC
};

/// Indices into `nics`, which are in PCI order, ascending; the first is *the* nearest. Empty only
/// if there are no NICs.
std::vector<int> choose_nics(std::span<const PciPlace> nics, const GpuPlaces& gpus);

/// The place of a device whose sysfs folder is `folder` (a symbolic link as a rule).
PciPlace read_place(const std::string& folder);
/// The GPUs of this machine as sysfs lists them and the one that `options` names.
GpuPlaces read_gpus(const Options& options);

}  // namespace railyard::verbs
