// SPDX-License-Identifier: Apache-2.0
#include "intercept/nccl_library.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "base/loaded_object.h"
#include "base/log.h"

namespace railyard::intercept {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
constexpr const char* kProbe = "ncclGetVersion";

/// Copies are only added, by one thread at a time: the loader's lock is held.
std::atomic<const NcclLibrary*> all[NcclLibrary::kMostCopies];
std::atomic<size_t> count{0};

bool is_own(const LoadedObject& object) {
  return object.contains(reinterpret_cast<const void*>(&is_own));
}

bool is_named_nccl(const LoadedObject& object) {
  return std::strncmp(object.file_name(), "libnccl", 7) == 0;
}

template <typename Function>
void resolve(const LoadedObject& object, const char* name, Function& function) {
  const void* symbol = object.find((std::string("p") + name).c_str());
  if (symbol == nullptr) symbol = object.find(name);
  function = reinterpret_cast<Function>(reinterpret_cast<uintptr_t>(symbol));
}

const NcclLibrary* describe(const LoadedObject& object, size_t index) {
  auto* const library = new NcclLibrary;
#define RY_RESOLVE(name, ...) resolve(object, #name, library->name);
  RY_NCCL_FUNCTIONS(RY_RESOLVE, RY_RESOLVE, RY_RESOLVE, RY_NO_ROW)
#undef RY_RESOLVE
  for (size_t i = 0; i < kFunctions; ++i) library->exported[i] = object.find(kFunctionNames[i]);
  library->index = index;
  library->path = object.path();
  library->whole_begin = object.begin();
  library->whole_end = object.end();
  // Callers in a library with NCCL inside are not NCCL.
  if (is_named_nccl(object)) {
    library->begin = object.begin();
    library->end = object.end();
  }
  if (library->path.empty()) {
    log::warn(
        "NCCL is linked statically into the program: its calls cannot be intercepted and stay "
        "with NCCL");
  }
  return library;
}

bool known(const LoadedObject& object) {
  for (size_t i = 0; i < NcclLibrary::copies(); ++i) {
    if (NcclLibrary::copy(i).whole_begin == object.begin()) return true;
  }
  return false;
}

/// The path of the object with this code; empty if that is the program.
std::string path_of(const void* code) {
  std::string path;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (!object.contains(code)) return true;
    path = object.path();
    return false;
  });
  return path;
}

const NcclLibrary* owner(const void* probe) {
  if (probe == nullptr) return nullptr;
  for (size_t i = 0; i < NcclLibrary::copies(); ++i) {
    if (NcclLibrary::copy(i).shares_object_with(probe)) return &NcclLibrary::copy(i);
  }
  return nullptr;
}

const NcclLibrary* first_copy() {
  for (size_t i = 0; i < NcclLibrary::copies(); ++i) {
    const NcclLibrary& copy = NcclLibrary::copy(i);
    if (copy.begin < copy.end) return &copy;
  }
  return &NcclLibrary::copy(0);
}

}  // namespace

void NcclLibrary::refresh() {
  std::vector<std::string> added;
  bool too_many = false;
  // What was preloaded before railyard and defines NCCL's names is a layer in front of it, which
  // gets to railyard as programs do.
  bool in_front = in_global_scope();
  for_each_loaded_object([&](const LoadedObject& object) {
    if (is_own(object)) in_front = false;
    const bool layer = in_front && !object.path().empty() && !is_named_nccl(object);
    if (layer || object.find(kProbe) == nullptr || is_own(object) || known(object)) return true;
    const size_t number = copies();
    too_many = number == kMostCopies;
    if (too_many) return false;
    all[number].store(describe(object, number), std::memory_order_release);
    count.store(number + 1, std::memory_order_release);
    added.push_back(object.path());
    return true;
  });
  for (const std::string& path : added) {  // outside: this takes another lock of the loader
    if (!path.empty()) dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
  static std::atomic<bool> complained{false};
  if (too_many && !complained.exchange(true)) {
    log::warn("this process holds more than %zu copies of NCCL: the last ones are left alone",
              kMostCopies);
  }
}

size_t NcclLibrary::copies() { return count.load(std::memory_order_acquire); }

const NcclLibrary& NcclLibrary::copy(size_t index) {
  return *all[index].load(std::memory_order_acquire);
}

const NcclLibrary* NcclLibrary::defining(const void* function) {
  const NcclLibrary* const copy = owner(function);
  if (copy == nullptr) return nullptr;
  for (const void* address : copy->exported) {
    if (address == function) return copy;
  }
  return nullptr;
}

const NcclLibrary* NcclLibrary::find_from(const void* caller) {
  if (copies() == 0) refresh();
  if (copies() == 0) return nullptr;
  if (copies() == 1) return &copy(0);
  // As the loader: first what all objects share, then what the caller's object brought along.
  static void* const program = dlopen(nullptr, RTLD_LAZY);
  const NcclLibrary* found = owner(dlsym(in_global_scope() ? RTLD_NEXT : program, kProbe));
  if (found != nullptr) return found;
  const std::string path = path_of(caller);
  if (path.empty()) return first_copy();
  void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return first_copy();
  found = owner(dlsym(handle, kProbe));
  dlclose(handle);
  return found == nullptr ? first_copy() : found;
}

const NcclLibrary* NcclLibrary::reached_from(const void* caller) {
  const NcclLibrary* const found = find_from(caller);
  static std::atomic<bool> complained{false};
  if (found == nullptr && !complained.exchange(true)) {
    log::warn("an NCCL function was called but no NCCL library is loaded; link the program with %s",
              kSoname);
  }
  return found;
}

bool in_global_scope() {
  static const bool global = [] {
    void* const program = dlopen(nullptr, RTLD_LAZY);
    const void* const name = program == nullptr ? nullptr : dlsym(program, kOwnName);
    if (program != nullptr) dlclose(program);
    bool own = false;
    for_each_loaded_object([&](const LoadedObject& object) {
      own = own || (is_own(object) && object.contains(name));
      return !own;
    });
    return own;
  }();
  return global;
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
