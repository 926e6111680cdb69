// SPDX-License-Identifier: Apache-2.0
#include "intercept/nccl_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "base/log.h"

namespace railyard::intercept {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
constexpr const char* kProbe = "ncclGetVersion";

struct Object {
  std::string path;
  uintptr_t begin = 0, end = 0;

  bool contains(const void* address) const {
    const auto value = reinterpret_cast<uintptr_t>(address);
    return begin <= value && value < end;
  }
  bool named_nccl() const {
    return path.compare(path.rfind('/') + 1, 10, kSoname, 10) == 0;  // "libnccl.so"
  }
};

int add_object(dl_phdr_info* info, size_t, void* list) {
  Object object;
  object.path = info->dlpi_name;
  object.begin = UINTPTR_MAX;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t first = info->dlpi_addr + header.p_vaddr;
    object.begin = std::min(object.begin, first);
    object.end = std::max(object.end, first + header.p_memsz);
  }
  static_cast<std::vector<Object>*>(list)->push_back(std::move(object));
  return 0;
}

/// Listed first and opened later: opening within the iteration would take the loader's locks in
/// the wrong order.
std::vector<Object> loaded_objects() {
  std::vector<Object> objects;
  dl_iterate_phdr(add_object, &objects);
  const void* const own = reinterpret_cast<const void*>(&add_object);
  std::erase_if(objects, [own](const Object& o) { return o.path.empty() || o.contains(own); });
  return objects;
}

template <typename Function>
void resolve(void* handle, const char* name, Function& function) {
  void* symbol = dlsym(handle, (std::string("p") + name).c_str());
  if (symbol == nullptr) symbol = dlsym(handle, name);
  function = reinterpret_cast<Function>(symbol);
}

const NcclLibrary* load(void* handle, const std::vector<Object>& objects) {
  auto* const library = new NcclLibrary;
#define RY_RESOLVE(name, ...) resolve(handle, #name, library->name);
  RY_NCCL_FUNCTIONS(RY_RESOLVE, RY_RESOLVE, RY_RESOLVE, RY_NO_ROW)
#undef RY_RESOLVE
  for (const Object& object : objects) {
    if (!object.contains(reinterpret_cast<const void*>(library->ncclGetVersion))) continue;
    library->path = object.path;
    if (!object.named_nccl()) continue;  // callers in a library with NCCL inside are not NCCL
    library->begin = object.begin;
    library->end = object.end;
  }
  return library;
}

const NcclLibrary* find() {
  const std::vector<Object> objects = loaded_objects();
  for (const bool named : {true, false}) {
    for (const Object& object : objects) {
      if (object.named_nccl() != named) continue;
      void* const handle = dlopen(object.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
      if (handle == nullptr) continue;
      const void* const probe = dlsym(handle, kProbe);
      // A handle also finds what its dependencies define, which need not be NCCL's own.
      if (probe != nullptr && object.contains(probe)) return load(handle, objects);
      dlclose(handle);
    }
  }
  if (dlsym(RTLD_NEXT, kProbe) != nullptr) return load(RTLD_NEXT, objects);
  void* const handle = dlopen(kSoname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr && dlsym(handle, kProbe) != nullptr) return load(handle, objects);
  return nullptr;
}

}  // namespace

const NcclLibrary* NcclLibrary::get() {
  static std::atomic<const NcclLibrary*> found{nullptr};
  static std::mutex mutex;
  static bool complained = false;
  const NcclLibrary* library = found.load(std::memory_order_acquire);
  if (library != nullptr) return library;
  const std::lock_guard lock(mutex);
  library = found.load(std::memory_order_relaxed);
  if (library != nullptr) return library;
  library = find();
  if (library == nullptr && !complained) {
    complained = true;
    log::warn("an NCCL function was called but no NCCL library is loaded; link the program with %s",
              kSoname);
  }
  found.store(library, std::memory_order_release);
  return library;
}

bool& inside_nccl() {
  static thread_local bool inside = false;
  return inside;
}

uint64_t type_bytes(ncclDataType_t type) {
  // By number: headers of older releases lack the names of the last two.
  static constexpr uint8_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  const auto index = static_cast<size_t>(type);
  return index < sizeof kBytes ? kBytes[index] : 0;
}

}  // namespace railyard::intercept
