// SPDX-License-Identifier: Apache-2.0
//
// Misuses NCCL in every way that needs no GPU and prints what it says, so that two runs can be
// compared. Runs with any libnccl.so.2.
#include <cstdio>

#include <nccl.h>

namespace {

void print(const char* call, ncclResult_t result) {
  std::printf("%s: %d (%s), last error: %s\n", call, static_cast<int>(result),
              ncclGetErrorString(result), ncclGetLastError(nullptr));
}
#define RY_PRINT(call) print(#call, call)

}  // namespace

int main() {
  ncclUniqueId id = {};
  ncclComm_t comm = nullptr, child = nullptr;
  ncclResult_t state = ncclSuccess;
  char buffer[16] = {};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);

  RY_PRINT(ncclGroupEnd());
  RY_PRINT(ncclSend(buffer, 1, ncclChar, 0, nullptr, nullptr));
  RY_PRINT(ncclRecv(buffer, 1, ncclChar, 0, nullptr, nullptr));
  RY_PRINT(ncclAllReduce(buffer, buffer, 1, ncclChar, ncclSum, nullptr, nullptr));
  RY_PRINT(ncclGroupStart());
  RY_PRINT(ncclGroupStart());
  RY_PRINT(ncclSend(buffer, 1, ncclChar, 0, nullptr, nullptr));
  RY_PRINT(ncclGroupEnd());
  RY_PRINT(ncclGroupEnd());
  RY_PRINT(ncclGroupStart());
  RY_PRINT(ncclGroupEnd());

  RY_PRINT(ncclGetUniqueId(nullptr));
  RY_PRINT(ncclCommInitRank(nullptr, 2, id, 0));
  RY_PRINT(ncclCommInitRank(&comm, 2, id, 2));
  RY_PRINT(ncclCommInitRank(&comm, 0, id, 0));
  RY_PRINT(ncclCommInitRankConfig(&comm, 2, id, -1, nullptr));
  RY_PRINT(ncclCommSplit(nullptr, 0, 0, &child, nullptr));
  RY_PRINT(ncclCommGetAsyncError(nullptr, &state));
  RY_PRINT(ncclCommFinalize(nullptr));
  RY_PRINT(ncclCommAbort(nullptr));
  RY_PRINT(ncclCommDestroy(nullptr));

  // With a good id, but usually without a GPU: whatever it says, it must be NCCL's own.
  RY_PRINT(ncclGetUniqueId(&id));
  RY_PRINT(ncclCommInitRank(&comm, 1, id, 0));
  RY_PRINT(ncclCommInitAll(&comm, 1, nullptr));
  std::printf("end\n");
  return 0;
}
