// SPDX-License-Identifier: Apache-2.0
//
// A layer that traces NCCL's calls, as profilers preload them: defines some of NCCL's functions and
// goes on to the next definition. Says at the end how many messages it has seen.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>

#include <nccl.h>

namespace {

struct Counter {
  std::atomic<int> sends{0};
  ~Counter() { std::fprintf(stderr, "traced %d messages\n", sends.load()); }
} counter;

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

ncclResult_t ncclSend(const void* buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  static const auto real = next<decltype(&ncclSend)>("ncclSend");
  counter.sends.fetch_add(1);
  return real(buffer, count, type, peer, comm, stream);
}

#ifdef RY_WHOLE_LAYER
ncclResult_t ncclGetVersion(int* version) {
  return next<decltype(&ncclGetVersion)>("ncclGetVersion")(version);
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return next<decltype(&ncclGetUniqueId)>("ncclGetUniqueId")(id);
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return next<decltype(&ncclCommInitRank)>("ncclCommInitRank")(comm, ranks, id, rank);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return next<decltype(&ncclCommDestroy)>("ncclCommDestroy")(comm);
}
ncclResult_t ncclGroupStart() { return next<decltype(&ncclGroupStart)>("ncclGroupStart")(); }
ncclResult_t ncclGroupEnd() { return next<decltype(&ncclGroupEnd)>("ncclGroupEnd")(); }
ncclResult_t ncclRecv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return next<decltype(&ncclRecv)>("ncclRecv")(buffer, count, type, peer, comm, stream);
}
#endif
