// SPDX-License-Identifier: Apache-2.0
//
// What an NCCL call costs that railyard sees but leaves to NCCL. Calls an NCCL that does nothing
// many times; prints nanoseconds per call, or with --calls N runs N of each for an instruction
// counter and prints nothing.
//
//   call_through FUNCTION [--calls N]      FUNCTION: none, or a name below
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <nccl.h>

namespace {

ncclComm_t comm() {
  static char somewhere;
  return reinterpret_cast<ncclComm_t>(&somewhere);
}

struct Case {
  const char* name;
  void (*call)();
};

char buffer[16];

void group() {
  ncclGroupStart();
  ncclGroupEnd();
}

constexpr Case kCases[] = {
    {"none", [] {}},
    {"ncclSend", [] { ncclSend(buffer, 1, ncclChar, 0, comm(), nullptr); }},
    {"ncclRecv", [] { ncclRecv(buffer, 1, ncclChar, 0, comm(), nullptr); }},
    {"ncclAlltoAll", [] { ncclAlltoAll(buffer, buffer, 1, ncclChar, comm(), nullptr); }},
    {"ncclGroupStart+End", group},
    {"ncclCommGetAsyncError",
     [] {
       ncclResult_t state = ncclSuccess;
       ncclCommGetAsyncError(comm(), &state);
     }},
    {"ncclAllReduce", [] { ncclAllReduce(buffer, buffer, 1, ncclChar, ncclSum, comm(), nullptr); }},
};

void repeat(const Case& one, long calls) {
  for (long i = 0; i < calls; ++i) one.call();
}

/// The best of several rounds: others use the machine too.
double nanoseconds(const Case& one) {
  constexpr long kCalls = 200'000;
  double best = 1e9;
  repeat(one, kCalls / 10);
  for (int round = 0; round < 9; ++round) {
    const auto start = std::chrono::steady_clock::now();
    repeat(one, kCalls);
    const std::chrono::duration<double, std::nano> passed =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, passed.count() / static_cast<double>(kCalls));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  for (const Case& one : kCases) {
    if (argc < 2 || std::strcmp(argv[1], one.name) != 0) continue;
    if (argc == 4 && std::string(argv[2]) == "--calls") {
      repeat(one, std::atol(argv[3]));
    } else {
      std::printf("%.2f\n", nanoseconds(one));
    }
    return 0;
  }
  std::fprintf(stderr, "usage: call_through FUNCTION [--calls N], FUNCTION one of:");
  for (const Case& one : kCases) std::fprintf(stderr, " %s", one.name);
  std::fprintf(stderr, "\n");
  return 2;
}
