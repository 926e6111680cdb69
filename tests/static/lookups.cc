// SPDX-License-Identifier: Apache-2.0
//
// Looks an NCCL function up in every way, before NCCL is loaded, when it is loaded for itself alone
// and when for all, and prints where it was found, so that two runs can be compared.
#include <dlfcn.h>

#include <cstdio>
#include <initializer_list>

namespace {

void print(const char* place, void* handle, const char* name) {
  dlerror();
  const void* const found = dlsym(handle, name);
  const char* const error = dlerror();
  std::printf("%s: %s is %s, %s\n", place, name, found == nullptr ? "absent" : "there",
              error == nullptr ? "no error" : "an error");
}

void look_everywhere(const char* when, void* nccl) {
  std::printf("%s\n", when);
  void* const other = dlopen("libm.so.6", RTLD_NOW);
  void* const program = dlopen(nullptr, RTLD_NOW);
  for (const char* name : {"ncclSend", "ncclCommSplit", "ncclAllGather", "ncclNonsense"}) {
    print("another library", other, name);
    print("the program", program, name);
    print("by default", RTLD_DEFAULT, name);
    print("next", RTLD_NEXT, name);
    if (nccl != nullptr) print("NCCL", nccl, name);
  }
}

}  // namespace

int main() {
  look_everywhere("without NCCL", nullptr);
  void* nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  look_everywhere("for itself alone", nccl);
  nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  look_everywhere("for all", nccl);
  std::printf("end\n");
  return 0;
}
