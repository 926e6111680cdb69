// SPDX-License-Identifier: Apache-2.0
//
// Threads that load and unload libraries which call NCCL, all at the same time; each time such a
// library must get to the NCCL of this process, and must not find what that lacks.
//
//   loader_race NCCL CALLER...
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

std::atomic<int> failures{0};

void fail(const char* what) {
  if (failures.fetch_add(1) == 0) std::fprintf(stderr, "%s\n", what);
}

/// -1 if the library lacks the function.
int call(void* library, const char* name) {
  auto* const function = reinterpret_cast<int (*)()>(dlsym(library, name));
  return function == nullptr ? -1 : function();
}

void load_and_call(const char* path) {
  constexpr int kRounds = 200, kInvalidUsage = 5;
  for (int i = 0; i < kRounds; ++i) {
    void* const library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return fail(dlerror());
    if (call(library, "call_group_end") != kInvalidUsage) fail("a call did not reach NCCL");
    if (call(library, "has_send") != 1) fail("ncclSend is missing");
    if (call(library, "has_resume") != 0) fail("a function that NCCL lacks is there");
    if (call(library, "no_such_function") != -1 || dlerror() == nullptr) fail("no error");
    if (dlclose(library) != 0) fail("cannot unload");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) return 2;
  std::vector<std::thread> threads;
  threads.reserve(2 * static_cast<size_t>(argc - 2));
  // Each library is also loaded twice at a time.
  for (int i = 0; i < 2 * (argc - 2); ++i) {
    threads.emplace_back(load_and_call, argv[2 + i % (argc - 2)]);
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%d failures\n", failures.load());
  return failures.load() == 0 ? 0 : 1;
}
