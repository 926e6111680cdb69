// SPDX-License-Identifier: Apache-2.0
//
// Which transport a rank uses, and how it is made.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "base/nccl_env.h"
#include "base/socket.h"
#include "base/status.h"
#include "comm/gpu_facts.h"
#include "exchange/gpu.h"

namespace railyard::comm {

/// For one GPU.
struct UsableTransport {
  std::string name;
  std::vector<std::string> nics;  ///< of the node, in PCI order; empty where NICs do not matter
  int nearest_nic = -1;           ///< index into nics
};

/// What the configuration asks for, if this machine has it; else why not.
Result<UsableTransport> find_transport(const Config& config, const NcclEnv& nccl,
                                       const GpuFacts& gpu);

/// `at`: this process's address on the network, port 0.
Result<exchange::TransportChoice> make_transport(const Config& config, const NcclEnv& nccl,
                                                 const GpuFacts& gpu, const net::SocketAddress& at);

}  // namespace railyard::comm
