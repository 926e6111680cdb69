// SPDX-License-Identifier: Apache-2.0
//
// What is refused, with which code, and that all goes on afterwards.
#include <array>

#include "cases.h"

namespace conformance {
namespace {

constexpr unsigned kEverywhere = kProcesses | kThreads | kOneNode;

/// What every call takes, one of them wrong.
struct Arguments {
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 16;
  ncclDataType_t type = ncclInt8;
  int peer = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

struct Function {
  const char* name;
  int since;
  bool has_peer;
  ncclResult_t (*call)(const Arguments&);
};

const std::array kFunctions = {
    Function{"ncclSend", 21200, true,
             [](const Arguments& a) {
               return ncclSend(a.from, a.count, a.type, a.peer, a.comm, a.stream);
             }},
    Function{"ncclRecv", 21200, true,
             [](const Arguments& a) {
               return ncclRecv(a.to, a.count, a.type, a.peer, a.comm, a.stream);
             }},
    Function{"ncclAlltoAll", 22803, false,
             [](const Arguments& a) {
               return ncclAlltoAll(a.from, a.to, a.count, a.type, a.comm, a.stream);
             }},
    Function{"ncclGather", 22803, true,
             [](const Arguments& a) {
               return ncclGather(a.from, a.to, a.count, a.type, a.peer, a.comm, a.stream);
             }},
    Function{"ncclScatter", 22803, true,
             [](const Arguments& a) {
               return ncclScatter(a.from, a.to, a.count, a.type, a.peer, a.comm, a.stream);
             }},
    Function{"ncclBroadcast", 21200, true,
             [](const Arguments& a) {
               return ncclBroadcast(a.from, a.to, a.count, a.type, a.peer, a.comm, a.stream);
             }},
    Function{"ncclAllReduce", 21200, false,
             [](const Arguments& a) {
               return ncclAllReduce(a.from, a.to, a.count, a.type, ncclSum, a.comm, a.stream);
             }},
};

enum class Wrong { kCommunicator, kPeer, kType };

void refused(Trial& t, const Function& function, Wrong wrong) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, ranks, 64), in(t, ranks, 64);
  const Arguments right{out.at(0), in.at(0), 16, ncclInt8, t.next(), comm, stream};
  std::vector<Arguments> bad;
  const auto add = [&](auto change) {
    bad.push_back(right);
    change(bad.back());
  };
  switch (wrong) {
    case Wrong::kCommunicator:
      add([](Arguments& a) { a.comm = nullptr; });
      break;
    case Wrong::kPeer:
      for (const int peer : {-1, t.ranks, 1 << 30}) add([peer](Arguments& a) { a.peer = peer; });
      break;
    case Wrong::kType:
      for (const int type : {-1, 12, 15}) {
        add([type](Arguments& a) { a.type = static_cast<ncclDataType_t>(type); });
      }
      break;
  }
  for (const Arguments& arguments : bad) {
    for (const bool grouped : {false, true}) {
      if (grouped) NCCL(ncclGroupStart());
      t.nccl(function.name, function.call(arguments));
      if (grouped) NCCL(ncclGroupEnd());
    }
    Arguments empty = arguments;
    empty.count = 0;
    t.nccl(function.name, function.call(empty));
  }
  t.sync(stream);
  exchange_ring(t, comm, stream, 1000, 1);
}

/// Which of two wrong arguments is seen.
void two_wrong(Trial& t) {
  const ncclComm_t comm = t.comm();
  const auto bad = static_cast<ncclDataType_t>(13);
  NCCL(ncclSend(nullptr, 1, bad, -1, nullptr, nullptr));
  NCCL(ncclSend(nullptr, 1, bad, -1, comm, nullptr));
  NCCL(ncclRecv(nullptr, 1, ncclInt8, -1, nullptr, nullptr));
  exchange_ring(t, comm, t.stream(), 1000, 1);
}

/// NCCL_CHECK_POINTERS=1: only memory of the communicator's device will do.
void pointers(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  char host[64] = {};
  const Buffer out(t, static_cast<size_t>(t.ranks), 64);
  NCCL(ncclSend(host, 64, ncclInt8, t.next(), comm, stream));
  NCCL(ncclRecv(host, 64, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclSend(nullptr, 64, ncclInt8, t.next(), comm, stream));
  NCCL(ncclBroadcast(host, host, 64, ncclInt8, 0, comm, stream));
  if (ncclAlltoAll != nullptr) {
    NCCL(ncclAlltoAll(out.at(0), host, 1, ncclInt8, comm, stream));
    NCCL(ncclAlltoAll(host, out.at(0), 1, ncclInt8, comm, stream));
  }
  t.sync(stream);
  exchange_ring(t, comm, stream, 1000, 1);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(nullptr, 0, ncclInt8, t.next(), comm, stream));
  NCCL(ncclRecv(nullptr, 0, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
}

/// Without it they are not looked at; these messages never start.
void unchecked_pointers(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  char host[64] = {};
  NCCL(ncclGroupStart());
  NCCL(ncclSend(host, 64, ncclInt8, t.next(), comm, stream));
  NCCL(ncclRecv(nullptr, 64, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclSend(host, 64, ncclInt8, -1, comm, stream));
  NCCL(ncclGroupEnd());
  exchange_ring(t, comm, stream, 1000, 1);
}

void bad_creations(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclComm_t comm = nullptr;
  NCCL(ncclCommInitRank(&comm, 0, ids.at(0), 0));
  NCCL(ncclCommInitRank(&comm, t.ranks, ids.at(0), -1));
  NCCL(ncclCommInitRank(&comm, t.ranks, ids.at(0), t.ranks));
  NCCL(ncclCommInitRank(nullptr, t.ranks, ids.at(0), t.rank));
  CHECK(comm == nullptr);
  NCCL(ncclCommInitRank(&comm, t.ranks, ids.at(0), t.rank));
  t.watch(comm);
  exchange_ring(t, comm, t.stream(), 1000, 1);
}

/// A message with the wrong size is an error at the receiver, which then refuses calls.
void pending_error(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer out(t, 1, 2000), in(t, 1, 2000);
  exchange_ring(t, comm, stream, 1000, 1);
  t.forget(comm);
  const int last = t.ranks - 1;
  if (t.rank == 0) {
    NCCL(ncclSend(out.at(0), 1000, ncclInt8, last, comm, stream));
  } else if (t.rank == last) {
    NCCL(ncclRecv(in.at(0), 2000, ncclInt8, 0, comm, stream));
    const ncclResult_t error = t.await_error(comm);
    const ncclResult_t refused = NCCL(ncclSend(out.at(0), 1, ncclInt8, 0, comm, stream));
    CHECK(refused == error);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(out.at(0), 1, ncclInt8, 0, comm, stream));
    NCCL(ncclGroupEnd());
    NCCL(ncclBroadcast(out.at(0), in.at(0), 1, ncclInt8, 0, comm, stream));
  }
  t.world.barrier();
  t.abort(comm);
  t.sync(stream);
}

}  // namespace

Cases argument_cases() {
  Cases cases = {
      {"two wrong arguments", {"5.7/communicator", "5.7/peer"}, kEverywhere | kVersions, two_wrong},
      {"checked pointers", {"5.7/pointers"}, kPointers, pointers},
      {"unchecked pointers", {"5.7/pointers"}, kEverywhere, unchecked_pointers},
      {"creations that are refused", {"5.9/init-rank"}, kEverywhere | kVersions, bad_creations},
      {"pending error",
       {"5.7/pending-error"},
       kProcesses | kOneNode,
       pending_error,
       21200,
       kUncounted},
  };
  const std::array kinds = {
      std::tuple{Wrong::kCommunicator, "communicator", "5.7/communicator"},
      std::tuple{Wrong::kPeer, "peer", "5.7/peer"},
      std::tuple{Wrong::kType, "type", "5.7/type"},
  };
  for (const Function& function : kFunctions) {
    for (const auto& [wrong, what, row] : kinds) {
      if (wrong == Wrong::kPeer && !function.has_peer) continue;
      cases.push_back({std::string(function.name) + " with a wrong " + what,
                       {row},
                       kEverywhere | kVersions,
                       [function, wrong = wrong](Trial& t) { refused(t, function, wrong); },
                       function.since});
    }
  }
  return cases;
}

}  // namespace conformance
