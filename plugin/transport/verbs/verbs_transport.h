// SPDX-License-Identifier: Apache-2.0
//
// The transport for machines with RDMA: InfiniBand and RoCE through libibverbs.
//
//   verbs::Options options = verbs::options_from(lookup);
//   options.bootstrap = address_of_the_interface;  options.gpu_pci = …;
//   auto survey = verbs::survey(options);      // before the pools exist: where should they be?
//   auto transport = transport::make_verbs(options);
//   (*transport)->listen(staging, landing);
//
// A cell is an RDMA write with immediate straight from staging to landing memory; a credit is one
// of no bytes. The immediate holds the tag, its highest bit says which of the two it is. Every
// cell is one write with a completion of its own, so nothing depends on the order of writes and
// adaptive routing does no harm.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/transport.h"
#include "transport/verbs/options.h"

namespace railyard::verbs {

/// What this machine offers one GPU. For the join record, for the pools, and for whoever explains
/// the machine to a person.
struct Survey {
  struct NicPlace {
    std::string text;   ///< "mlx5_0 port 1 (RoCE v2, GID 3 ::ffff:10.0.0.1, MTU 4096)"
    std::string place;  ///< bus id, or the name of a device that is not on PCI; one per port
  };
  std::vector<NicPlace> nics;  ///< all usable ones of the node, in PCI order: position is rail
  std::vector<int> chosen;     ///< indices of those this GPU uses, at least one
  int nearest() const { return chosen.front(); }

  bool staging_on_gpu = false, landing_on_gpu = false;  ///< else in host memory
  std::string memory;          ///< "GPU memory (dma-buf)", …: where cells land
  std::string why_not_better;  ///< empty: it is the best there is
};

/// kUnavailable, with reason and remedy, if there is no library, no device or no usable port.
Result<Survey> survey(const Options& options);

}  // namespace railyard::verbs

namespace railyard::transport {

/// Fails like verbs::survey().
Result<std::unique_ptr<Transport>> make_verbs(const verbs::Options& options);

}  // namespace railyard::transport
