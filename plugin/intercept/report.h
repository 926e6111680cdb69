// SPDX-License-Identifier: Apache-2.0
//
// Railyard's failures as NCCL's callers see them: a result code, and a text from ncclGetLastError.
#pragma once

#include <mutex>
#include <string>

#include <nccl.h>

#include "base/status.h"
#include "intercept/nccl_library.h"

namespace railyard::intercept {

ncclResult_t to_result(const Status& status);

/// The last failure of railyard, unless NCCL has had one since. Thread-safe.
class LastError {
 public:
  explicit LastError(const NcclLibrary& nccl) : nccl_(nccl) {}
  /// Keeps the message; returns to_result(status).
  ncclResult_t set(const Status& status);
  /// Valid until the same thread asks again.
  const char* text(ncclComm_t comm);

 private:
  const char* text_of_nccl(ncclComm_t comm) const;

  const NcclLibrary& nccl_;
  std::mutex mutex_;   ///< guards the rest
  std::string ours_;   ///< empty: no failure yet
  std::string nccls_;  ///< NCCL's text when ours was set: another one since is newer than ours
};

}  // namespace railyard::intercept
