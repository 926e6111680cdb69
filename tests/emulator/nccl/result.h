// SPDX-License-Identifier: Apache-2.0
//
// Results of the emulated NCCL and the text behind ncclGetLastError.
#pragma once

#include <nccl.h>

namespace railyard::emulator {

/// Returns `code`, or ncclSystemError where this version of NCCL has no such code, having kept the
/// text for ncclGetLastError and, with NCCL_DEBUG=WARN or more, written it to stderr. Formats as
/// printf does. Thread-safe.
[[gnu::format(printf, 2, 3)]] ncclResult_t fail(ncclResult_t code, const char* format, ...);

/// fail(ncclSystemError, …) with ": " and the text of errno at the end.
[[gnu::format(printf, 1, 2)]] ncclResult_t fail_system(const char* format, ...);

/// The text of the last failure in this process. Valid until the calling thread asks again.
const char* last_error();

const char* describe(ncclResult_t result);

}  // namespace railyard::emulator
