// SPDX-License-Identifier: Apache-2.0
//
// A program with NCCL inside, reduced to a few functions. With a path it loads that plugin as its
// NCCL would, then looks at it as at any environment plugin.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>

#include <nccl.h>

ncclResult_t ncclGetVersion(int* version) { return *version = 22809, ncclSuccess; }
ncclResult_t ncclGroupStart() { return ncclRemoteError; }
ncclResult_t ncclGroupEnd() { return ncclInternalError; }

namespace {

struct Plugin {
  const char* name;
  ncclResult_t (*init)(uint8_t, uint8_t, uint8_t, const char*);
  ncclResult_t (*finalize)();
  const char* (*get)(const char*);
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::printf("%s\n", dlerror()), 1;
    const auto* const plugin = static_cast<const Plugin*>(dlsym(library, "ncclEnvPlugin_v1"));
    if (plugin == nullptr || plugin->init(2, 28, 9, "") != ncclSuccess) return 1;
    if (plugin->get("no such variable") != nullptr || plugin->get("PATH") == nullptr) return 1;
  }
  int version = 0;
  ncclGetVersion(&version);
  const ncclResult_t start = ncclGroupStart(), end = ncclGroupEnd();
  std::printf("%d %d %d\n", version, static_cast<int>(start), static_cast<int>(end));
  return 0;
}
