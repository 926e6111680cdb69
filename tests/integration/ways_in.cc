// SPDX-License-Identifier: Apache-2.0
//
// One rank of a program that exchanges messages through NCCL, to show by which ways railyard comes
// between the two. How the program finds NCCL is fixed when it is compiled: by linking it, or, with
// RY_LOOKUP, by dlopen() and dlsym().
//
//   ways_in first              one communicator, the first use of NCCL
//   ways_in later              one that is made after another, which carries nothing
//   ways_in copies PATH...     as first, with several copies of NCCL that the program loads itself
//   ways_in plugin KIND PATH   as later; between the two the program loads the plugin, as an NCCL
//                              would: KIND is env or tuner, PATH may be STATIC_PLUGIN
//   ways_in split ENV TUNER    loads both plugins during the creation of a communicator, and uses
//                              another one that is split from it
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "rendezvous.h"

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "ways_in: rank %s: %s\n", std::getenv("RANK"), what.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

void check(bool good, const char* call) {
  if (!good) fail(std::string("failed: ") + call);
}
#define RY_CHECK(call) check((call) == 0, #call)

/// NCCL's functions as this program knows them.
struct Nccl {
#define RY_USED(X)    \
  X(ncclGetUniqueId)  \
  X(ncclCommInitRank) \
  X(ncclCommSplit) X(ncclCommDestroy) X(ncclGroupStart) X(ncclGroupEnd) X(ncclSend) X(ncclRecv)
#define RY_MEMBER(name) decltype(&::name) name = nullptr;
  RY_USED(RY_MEMBER)
#undef RY_MEMBER

  explicit Nccl([[maybe_unused]] const char* path = "libnccl.so.2") {
#ifdef RY_LOOKUP
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(dlerror());
#define RY_FIND(name)                                                \
  name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  check(name != nullptr, "dlsym of " #name);
    RY_USED(RY_FIND)
#undef RY_FIND
    // What no NCCL has must not be there either.
    check(dlsym(library, "ncclCommNonsense") == nullptr && dlerror() != nullptr, "no such name");
#endif
  }
};

#ifdef RY_LOOKUP
#define RY_CALL(name) nccl.name
#else
#define RY_CALL(name) linked_##name
// By every kind of reference there is.
#define linked_ncclGetUniqueId ::ncclGetUniqueId
#define linked_ncclCommInitRank ::ncclCommInitRank
#define linked_ncclCommSplit ::ncclCommSplit
#define linked_ncclCommDestroy ::ncclCommDestroy
#define linked_ncclGroupStart ::ncclGroupStart
#define linked_ncclGroupEnd ::ncclGroupEnd
#define linked_ncclSend ::ncclSend
decltype(&::ncclRecv) volatile const linked_ncclRecv = &::ncclRecv;
#endif

int number(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) fail(std::string(variable) + " is not set; start through the launcher");
  return std::atoi(text);
}

struct Rank {
  int rank = number("RANK"), ranks = number("WORLD_SIZE");
};

/// All ranks send to all and check what arrives.
void exchange_all([[maybe_unused]] const Nccl& nccl, ncclComm_t comm, const Rank& self) {
  constexpr size_t kElements = 5000;
  const size_t all = kElements * static_cast<size_t>(self.ranks);
  void *from = nullptr, *to = nullptr;
  cudaStream_t stream = nullptr;
  RY_CHECK(cudaMalloc(&from, all * sizeof(int)));
  RY_CHECK(cudaMalloc(&to, all * sizeof(int)));
  RY_CHECK(cudaStreamCreate(&stream));
  std::vector<int> contents(all);
  for (size_t i = 0; i < all; ++i) contents[i] = self.rank * 1000000 + static_cast<int>(i);
  RY_CHECK(cudaMemcpy(from, contents.data(), all * sizeof(int), cudaMemcpyHostToDevice));
  RY_CHECK(RY_CALL(ncclGroupStart)());
  for (int peer = 0; peer < self.ranks; ++peer) {
    const auto offset = static_cast<size_t>(peer) * kElements;
    RY_CHECK(RY_CALL(ncclSend)(static_cast<int*>(from) + offset, kElements, ncclInt32, peer, comm,
                               stream));
    RY_CHECK(RY_CALL(ncclRecv)(static_cast<int*>(to) + offset, kElements, ncclInt32, peer, comm,
                               stream));
  }
  RY_CHECK(RY_CALL(ncclGroupEnd)());
  RY_CHECK(cudaStreamSynchronize(stream));
  RY_CHECK(cudaMemcpy(contents.data(), to, all * sizeof(int), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < all; ++i) {
    const auto source = static_cast<int>(i / kElements);
    const auto element = static_cast<size_t>(self.rank) * kElements + i % kElements;
    check(contents[i] == source * 1000000 + static_cast<int>(element), "right bytes arrive");
  }
  RY_CHECK(cudaStreamDestroy(stream));
  RY_CHECK(cudaFree(from));
  RY_CHECK(cudaFree(to));
}

/// `between` runs at rank 0 when it has the unique id.
ncclComm_t create(
    [[maybe_unused]] const Nccl& nccl, const Rank& self,
    const std::function<void()>& between = [] {}) {
  std::vector<ncclUniqueId> ids(1);
  if (self.rank == 0) {
    RY_CHECK(RY_CALL(ncclGetUniqueId)(ids.data()));
    between();
  }
  property::share_between_processes(self.rank, self.ranks, ids);
  ncclComm_t comm = nullptr;
  RY_CHECK(RY_CALL(ncclCommInitRank)(&comm, self.ranks, ids[0], self.rank));
  return comm;
}

void exchange(const Nccl& nccl) {
  const Rank self;
  ncclComm_t comm = create(nccl, self);
  exchange_all(nccl, comm, self);
  RY_CHECK(RY_CALL(ncclCommDestroy)(comm));
}

/// As NCCL loads its plugins: for itself alone, and late; or as it finds those that are there.
void load_plugin(const std::string& kind, const char* path) {
  const bool there = std::strcmp(path, "STATIC_PLUGIN") == 0;
  void* const plugin = dlopen(there ? nullptr : path, RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) fail(dlerror());
  if (kind == "env") {
    struct Table {
      const char* name;
      ncclResult_t (*init)(uint8_t, uint8_t, uint8_t, const char*);
      ncclResult_t (*finalize)();
      const char* (*get)(const char*);
    };
    const auto* const table = static_cast<const Table*>(dlsym(plugin, "ncclEnvPlugin_v1"));
    check(table != nullptr, "an env plugin");
    RY_CHECK(table->init(2, 28, 9, ""));
    check(std::string(table->get("RANK")) == std::getenv("RANK"), "variables are forwarded");
    return;
  }
  struct Table {
    const char* name;
    ncclResult_t (*init)(void**, uint64_t, size_t, size_t, void (*)(), int*, double*);
    void (*rest[2])();
  };
  const auto* const table = static_cast<const Table*>(dlsym(plugin, "ncclTunerPlugin_v5"));
  check(table != nullptr, "a tuner");
  void* context = nullptr;
  RY_CHECK(table->init(&context, 4711, static_cast<size_t>(number("WORLD_SIZE")), 2, nullptr,
                       nullptr, nullptr));
}

/// NCCL loads the environment plugin in the first call that reads settings: at rank 0 that is the
/// one for the unique id, so it sees the creation that others do not. Then comes the tuner.
void split(const Nccl& nccl, const Rank& self, const char* env, const char* tuner) {
  ncclComm_t world = create(nccl, self, [env] { load_plugin("env", env); });
  if (self.rank != 0) load_plugin("env", env);
  load_plugin("tuner", tuner);
  ncclComm_t child = nullptr;
  RY_CHECK(RY_CALL(ncclCommSplit)(world, 0, self.rank, &child, nullptr));
  exchange_all(nccl, child, self);
  RY_CHECK(RY_CALL(ncclCommDestroy)(child));
  RY_CHECK(RY_CALL(ncclCommDestroy)(world));
}

void run(int argc, char** argv) {
  const std::string how = argv[1];
  if (how == "copies") {
    std::vector<Nccl> copies;
    for (int i = 2; i < argc; ++i) copies.emplace_back(argv[i]);
    for (const Nccl& copy : copies) exchange(copy);
    return;
  }
  static const Nccl nccl;  // as frameworks keep it
  const Rank self;
  if (how == "first") return exchange(nccl);
  if (how == "split" && argc == 4) return split(nccl, self, argv[2], argv[3]);
  ncclComm_t before = create(nccl, self);
  if (how == "plugin" && argc == 4) load_plugin(argv[2], argv[3]);
  exchange(nccl);
  RY_CHECK(RY_CALL(ncclCommDestroy)(before));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: ways_in first|later|copies PATH...|plugin KIND PATH|split ENV TUNER\n");
    return 2;
  }
  RY_CHECK(cudaSetDevice(number("LOCAL_RANK")));
  run(argc, argv);
  return 0;
}
