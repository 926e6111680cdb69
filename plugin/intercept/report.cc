// SPDX-License-Identifier: Apache-2.0
#include "intercept/report.h"

namespace railyard::intercept {

ncclResult_t to_result(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return ncclSuccess;
    case Code::kInvalidArgument:
      return ncclInvalidArgument;
    case Code::kInvalidUsage:
      return ncclInvalidUsage;
    case Code::kUnavailable:
    case Code::kSystemError:
      return ncclSystemError;
    case Code::kDeviceError:
      return ncclUnhandledCudaError;
    case Code::kRemoteError:
      return ncclRemoteError;
    case Code::kAborted:
    case Code::kInternal:
      return ncclInternalError;
  }
  return ncclInternalError;
}

ncclResult_t LastError::set(const Status& status) {
  if (status.ok()) return ncclSuccess;
  std::string nccls = text_of_nccl(nullptr);
  const std::lock_guard lock(mutex_);
  ours_ = "railyard: " + status.message();
  nccls_ = std::move(nccls);
  return to_result(status);
}

const char* LastError::text(ncclComm_t comm) {
  static thread_local char copy[1024];  // no destructor: programs may ask while they end
  const char* const nccls = text_of_nccl(comm);
  const std::lock_guard lock(mutex_);
  if (ours_.empty() || nccls_ != nccls) return nccls;
  copy[ours_.copy(copy, sizeof copy - 1)] = '\0';
  return copy;
}

const char* LastError::text_of_nccl(ncclComm_t comm) const {
  const char* const text =
      nccl_.ncclGetLastError == nullptr ? nullptr : nccl_.ncclGetLastError(comm);
  return text == nullptr ? "" : text;
}

}  // namespace railyard::intercept
