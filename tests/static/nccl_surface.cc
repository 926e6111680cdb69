// SPDX-License-Identifier: Apache-2.0
//
// What an NCCL offers, as a program finds it that looks functions up by name: its version, what its
// unique ids end with, and which functions of railyard's table it has. Needs no GPU.
//
//   nccl_surface LIBRARY     prints lines of words
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "intercept/functions.h"

namespace {

struct Row {
  const char* name;
  int first;
};

constexpr Row kRows[] = {
#define RY_ROW(name, first, ...) {#name, first},
    RY_NCCL_FUNCTIONS(RY_ROW, RY_ROW, RY_ROW, RY_ROW)
#undef RY_ROW
};

template <typename Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

/// Whether ids end with zeros, as NCCL leaves them, or with railyard's mark.
void print_id(void* library, const char* name) {
  const auto make = find<ncclResult_t (*)(ncclUniqueId*)>(library, name);
  if (make == nullptr) return;
  ncclUniqueId id;
  std::fill(std::begin(id.internal), std::end(id.internal), '\x55');
  const ncclResult_t result = make(&id);
  const bool zeros =
      std::all_of(id.internal + 64, std::end(id.internal), [](char c) { return c == 0; });
  std::printf("%s returns %d, the id's end is %s\n", name, static_cast<int>(result),
              zeros ? "zero" : "marked");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  int version = 0;
  if (const auto get = find<ncclResult_t (*)(int*)>(library, "ncclGetVersion")) get(&version);
  std::printf("version %d\n", version);
  print_id(library, "pncclGetUniqueId");
  print_id(library, "ncclGetUniqueId");
  for (const Row& row : kRows) {
    const bool present = dlsym(library, row.name) != nullptr;
    std::printf("function %s since %d %s\n", row.name, row.first, present ? "present" : "absent");
  }
  const auto start = find<ncclResult_t (*)()>(library, "ncclGroupStart");
  const auto end = find<ncclResult_t (*)()>(library, "ncclGroupEnd");
  const auto text = find<const char* (*)(ncclResult_t)>(library, "ncclGetErrorString");
  if (start != nullptr && end != nullptr && text != nullptr) {
    const ncclResult_t opened = start(), closed = end(), again = end();
    std::printf("group %s, %s, %s\n", text(opened), text(closed), text(again));
  }
  return 0;
}
