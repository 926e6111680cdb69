// SPDX-License-Identifier: Apache-2.0
//
// What a verbs transport is told by its user: NCCL's variables under NCCL's rules, and facts about
// the GPU that only the caller can know.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/socket.h"

namespace railyard::verbs {

/// How far apart a GPU and a NIC are; the farther, the larger. Names as in NCCL_NET_GDR_LEVEL.
enum class Distance : uint8_t {
  kLocal,     ///< LOC: one device (never between a GPU and a NIC; as a level it means "not at all")
  kSwitch,    ///< PIX: one PCIe switch between them
  kSwitches,  ///< PXB: several switches, no host bridge
  kHostBridge,  ///< PHB: through the CPU's host bridge, same NUMA node
  kSystem,      ///< SYS: across NUMA nodes
};

struct Options {
  std::string library = "libibverbs.so.1";
  std::string sysfs = "/sys";

  bool disabled = false;         ///< NCCL_IB_DISABLE
  std::string hca;               ///< NCCL_IB_HCA
  int gid_index = -1;            ///< NCCL_IB_GID_INDEX; -1: choose
  int roce_version = 2;          ///< NCCL_IB_ROCE_VERSION_NUM
  int address_family = AF_INET;  ///< NCCL_IB_ADDR_FAMILY
  std::string address_range;     ///< NCCL_IB_ADDR_RANGE
  uint8_t traffic_class = 0;     ///< NCCL_IB_TC
  uint8_t service_level = 0;     ///< NCCL_IB_SL
  uint8_t timeout = 20;          ///< NCCL_IB_TIMEOUT: 4.096 µs · 2^timeout per try
  uint8_t retry_count = 7;       ///< NCCL_IB_RETRY_CNT
  uint16_t pkey_index = 0;       ///< NCCL_IB_PKEY
  bool relaxed_ordering = true;  ///< NCCL_IB_PCI_RELAXED_ORDERING, where the library can
  bool ece = true;               ///< NCCL_IB_ECE_ENABLE
  bool dmabuf = true;            ///< NCCL_DMABUF_ENABLE
  Distance gdr_level = Distance::kSwitches;  ///< NCCL_NET_GDR_LEVEL
  int gdr_read = -2;                         ///< NCCL_NET_GDR_READ; -2: by GPU generation
  bool force_flush = false;                  ///< NCCL_NET_FORCE_FLUSH
  bool flush_disabled = false;               ///< NCCL_GDR_FLUSH_DISABLE
  uint32_t queue_pairs = 1;                  ///< RAILYARD_QPS: per peer and NIC

  std::string gpu_pci;               ///< bus id of the GPU, "0000:18:00.0"; empty: unknown
  int gpu_index = 0, gpu_count = 1;  ///< its place among the node's GPUs where sysfs lacks it
  bool gpu_dmabuf = false;           ///< the driver exports dma-bufs of this GPU
  int gpu_compute = 0;               ///< compute capability, 90 for sm_90; 0: not a GPU
  /// Where peers reach this process to exchange queue pairs: an address of the interface that
  /// NCCL_SOCKET_IFNAME selects; port 0 lets the system choose.
  net::SocketAddress bootstrap;
  int connect_timeout_ms = 20000;  ///< for the exchange of queue pairs
};

/// Reads one variable: its value, or null if it is not set.
using Lookup = std::function<const char*(const char*)>;

/// The variables above as `lookup` has them, read as NCCL reads them: what cannot be understood
/// leaves the default. Facts about the GPU and `bootstrap` are left to the caller.
Options options_from(const Lookup& lookup);

}  // namespace railyard::verbs
