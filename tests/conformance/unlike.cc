// SPDX-License-Identifier: Apache-2.0
//
// Cases for a test of the comparison: each is another program under a preloaded library than
// without it, in one of the ways that must be found.
#include <cstdlib>

#include "cases.h"

namespace conformance {
namespace {

bool preloaded() {
  const char* const libraries = std::getenv("LD_PRELOAD");
  return libraries != nullptr && *libraries != '\0';
}

void result(Trial& t) {
  const ncclComm_t comm = t.comm();
  NCCL(ncclCommCount(preloaded() && t.rank == 2 ? nullptr : comm, std::make_unique<int>().get()));
}

void byte(Trial& t) {
  const Buffer buffer(t, 1, 1000);
  buffer.fill(0, {0, 0, 1});
  if (preloaded() && t.rank == 4) CUDA(cudaMemset(buffer.at(0) + 999, 1, 1));
  buffer.show("buffer");
}

void error(Trial& t) {
  exchange_ring(t, t.comm(), t.stream(), 100, 1);
  CHECK(!preloaded() || t.rank != 1);
}

void end(Trial& t) {
  exchange_ring(t, t.comm(), t.stream(), 100, 1);
  t.world.barrier();
  if (preloaded() && t.rank == 3) std::_Exit(3);
}

void ring(Trial& t) { exchange_ring(t, t.comm(), t.stream(), 100, 1); }

}  // namespace

Cases unlike_cases() {
  return {
      {"differs-on-purpose-nothing", {}, kProcesses, ring},
      {"differs-on-purpose-carrier", {}, kProcesses, ring},
      {"differs-on-purpose-result", {}, kProcesses, result},
      {"differs-on-purpose-byte", {}, kProcesses, byte},
      {"differs-on-purpose-error", {}, kProcesses, error},
      {"differs-on-purpose-end", {}, kProcesses, end},
  };
}

}  // namespace conformance
