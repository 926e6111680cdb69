// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a new communicator find each other.
//
// A unique id holds an address and a key in its first 64 bytes; the rest is zero. The process that
// makes it runs a root: a thread that collects one record from every rank, for as long as that
// takes, hands all of them to everyone, and after all have set up says whether all succeeded.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <vector>

#include <nccl.h>

#include "base/unique_fd.h"
#include "net.h"
#include "version.h"

namespace railyard::emulator {

/// What ranks tell each other. Sent as it lies in memory: all ranks are of one machine, and all
/// versions have the same.
struct Record {
  int32_t version = nccl_version();
  int32_t rank = 0;
  int32_t ranks = 0;
  int32_t device = 0;
  uint64_t host = 0;  ///< hash of the identity of the node
  int32_t pid = 0;
  int32_t rings_fd = -1;  ///< descriptor of the shared rings in process `pid`
  Key key;                ///< what connections to this rank begin with
  sockaddr_in address{};  ///< where this rank listens for data
  sockaddr_in control{};  ///< the same for what creations need, which goes by management
  char bus_id[16] = {};
  int32_t color = 0;  ///< for splits
  int32_t order = 0;
};

/// Makes an id and starts its root; with NCCL_COMM_ID the id names that address and has no root
/// yet.
ncclResult_t make_unique_id(ncclUniqueId* id);

/// Ends the root of an id that no rank will use.
void dismiss_root(const ncclUniqueId& id);

/// A rank's side of one creation.
class Bootstrap {
 public:
  /// Sends `own` and returns when all ranks have, their records in `table`, by rank.
  ncclResult_t exchange(const ncclUniqueId& id, const Record& own, int cancel,
                        std::vector<Record>* table);
  /// Tells how set-up went and returns when all ranks have; success only if all succeeded.
  ncclResult_t confirm(ncclResult_t own, int cancel);

 private:
  UniqueFd root_;
};

/// Identity of the node on which the rank of `device` is: an entry of EMULATOR_HOSTIDS (one for
/// each device, parted by commas: several nodes within one process), NCCL_HOSTID, or the
/// machine's name and boot.
uint64_t host_hash(int device);

}  // namespace railyard::emulator
