// SPDX-License-Identifier: Apache-2.0
//
// What all communicators of a process share: configuration, the meeting point, GPUs and mappings.
//
// Thread-safe. Makes nothing before it is asked for it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/config.h"
#include "base/nccl_env.h"
#include "base/status.h"
#include "comm/meeting_server.h"
#include "comm/record.h"
#include "comm/region_cache.h"
#include "exchange/gpu.h"

namespace railyard::comm {

/// A GPU with the ids under which other processes know its pools.
struct SharedGpu {
  std::unique_ptr<exchange::Gpu> gpu;
  Pool staging, landing;
};

class Process {
 public:
  Process(Config config, NcclEnv nccl) : config_(std::move(config)), nccl_(std::move(nccl)) {}

  const Config& config() const { return config_; }
  const NcclEnv& nccl() const { return nccl_; }
  RegionCache& regions() { return regions_; }

  /// A fresh meeting at this process's server, which is started by the first call.
  Result<MeetingPoint> new_meeting();

  /// Listens at an address that all ranks know, for those with `key`. Fails if the address is not
  /// this host's, or taken.
  Status open_rendezvous(const net::SocketAddress& at, const Secret& key);

  /// What a rank whose GPU is the context's says of itself. A null context, or anything else that
  /// keeps the rank from taking part, becomes its `trouble`.
  Introduction introduce(CUcontext context);

  /// The GPU of the context, made by the first call.
  Result<SharedGpu*> gpu(CUcontext context);

 private:
  Result<net::SocketAddress> address() const;
  /// Where the transport of a CUDA device listens, and what it sends from.
  Result<net::SocketAddress> data_address(int device) const;
  MeetingServerOptions meeting_options() const;
  Status fill(Introduction& record, CUcontext context);
  Status fill_place(Introduction& record, int device) const;
  Result<std::unique_ptr<SharedGpu>> make_gpu(CUcontext context);

  const Config config_;
  const NcclEnv nccl_;
  RegionCache regions_;

  std::mutex mutex_;  ///< guards all below
  std::optional<Secret> id_;
  std::unique_ptr<MeetingServer> server_;
  std::unique_ptr<MeetingServer> rendezvous_;
  std::map<CUcontext, std::unique_ptr<SharedGpu>> gpus_;
};

}  // namespace railyard::comm
