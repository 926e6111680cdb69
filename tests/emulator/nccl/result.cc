// SPDX-License-Identifier: Apache-2.0
#include "result.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <mutex>
#include <string>

#include "environment.h"
#include "version.h"

namespace railyard::emulator {
namespace {

std::mutex mutex;
/// Never destroyed: streams may fail while the process exits.
std::string& text = *new std::string;  // guarded by mutex

bool verbose() {
  const char* level = variable_so_far("NCCL_DEBUG");
  if (level == nullptr) return false;
  for (const char* loud : {"WARN", "INFO", "ABORT", "TRACE"}) {
    if (::strcasecmp(level, loud) == 0) return true;
  }
  return false;
}

void keep(const std::string& message) {
  const bool loud = verbose();
  std::lock_guard lock(mutex);
  text = message;
  if (loud) ::fprintf(stderr, "[%d] NCCL WARN %s\n", ::getpid(), message.c_str());
}

std::string format_text(const char* format, va_list arguments) {
  char buffer[1024];
  ::vsnprintf(buffer, sizeof buffer, format, arguments);
  return buffer;
}

/// The last code that this version of NCCL knows.
int last_code() {
  constexpr int kTimeout = 8;
  const int version = nccl_version();
  if (version < 21304) return ncclInvalidUsage;
  if (version < 21403) return ncclRemoteError;
  return version < 23003 ? static_cast<int>(ncclInProgress) : kTimeout;
}

}  // namespace

ncclResult_t fail(ncclResult_t code, const char* format, ...) {
  if (code > last_code()) code = ncclSystemError;
  va_list arguments;
  va_start(arguments, format);
  keep(format_text(format, arguments));
  va_end(arguments);
  return code;
}

ncclResult_t fail_system(const char* format, ...) {
  int error = errno;
  va_list arguments;
  va_start(arguments, format);
  keep(format_text(format, arguments) + ": " + ::strerror(error));
  va_end(arguments);
  return ncclSystemError;
}

const char* last_error() {
  thread_local std::string copy;
  std::lock_guard lock(mutex);
  copy = text;
  return copy.c_str();
}

const char* describe(ncclResult_t result) {
  if (result > last_code()) return "unknown result code";
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclNumResults:  // what was the number of codes is one of them in 2.30
      return "timeout";
  }
  return "unknown result code";
}

}  // namespace railyard::emulator
