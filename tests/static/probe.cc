// SPDX-License-Identifier: Apache-2.0
//
// A program that knows nothing of NCCL and tells what its process holds: threads, descriptors,
// libraries of GPUs. With names as arguments it loads each library (lib..., or a path) for itself
// alone, looks each function up in the last one loaded, or where all look if there is none, calls
// it, and prints what it returned, -1 where nobody defines it.
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace {

int entries(const char* path) {
  int count = 0;
  DIR* const directory = opendir(path);
  if (directory == nullptr) return -1;
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(directory);
  return count;
}

int print_if_foreign(dl_phdr_info* info, size_t, void*) {
  if (std::strstr(info->dlpi_name, "cuda") != nullptr ||
      std::strstr(info->dlpi_name, "verbs") != nullptr) {
    std::printf("%s\n", info->dlpi_name);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  void* library = RTLD_DEFAULT;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "lib", 3) == 0 || std::strchr(argv[i], '/') != nullptr) {
      library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        std::printf("%s\n", dlerror());
        return 1;
      }
      continue;
    }
    auto* const function = reinterpret_cast<int (*)()>(dlsym(library, argv[i]));
    std::printf("%d\n", function == nullptr ? -1 : function());
  }
  if (argc > 1) return 0;
  std::printf("threads %d, descriptors %d\n", entries("/proc/self/task"), entries("/proc/self/fd"));
  dl_iterate_phdr(print_if_foreign, nullptr);
  return 0;
}
