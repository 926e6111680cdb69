// SPDX-License-Identifier: Apache-2.0
#include "loader/answers.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "base/loaded_object.h"
#include "intercept/nccl_library.h"
#include "intercept/wrappers.h"
#include "loader/imports.h"
#include "loader/own.h"

namespace railyard::loader {
namespace {

using intercept::Function;
using intercept::NcclLibrary;

Answer given(const void* value) { return {const_cast<void*>(value), 1}; }

/// Whether dlopen(file) does the same for any caller.
bool independent_of_caller(const char* file, const void* caller) {
  if (file == nullptr || std::strchr(file, '$') != nullptr) return false;
  const bool is_path = std::strchr(file, '/') != nullptr;
  bool known = false, searches = false;
  for_each_loaded_object([&](const LoadedObject& object) {
    known = object.contains(caller);
    searches = known && object.has_search_path();
    return !known;
  });
  // Unknown: the caller lives in another namespace, and so must what it loads.
  return known && (is_path || !searches);
}

/// Looks in the program's scope, as a handle of the program does; null if nobody but railyard
/// defines the name there.
const void* find_in_program(const char* name) {
  static void* const program = dlopen(nullptr, RTLD_LAZY);
  const void* const found = dlsym(program, name);
  return is_own_code(found) ? dlsym(RTLD_NEXT, name) : found;
}

/// The same, then in the scope of the caller's object, as RTLD_DEFAULT does.
const void* find_by_default(const char* name, const void* caller) {
  const void* found = find_in_program(name);
  if (found != nullptr) return found;
  std::string path;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (!object.contains(caller)) return true;
    path = object.path();
    return false;
  });
  void* const handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  found = dlsym(handle, name);
  dlclose(handle);
  return is_own_code(found) ? nullptr : found;
}

/// The real function would find railyard's own name, if that is in its way.
Answer nowhere(const char* name) {
  if (!intercept::in_global_scope()) return {};
  return given(dlsym(RTLD_NEXT, name));  // null, and sets what dlerror() says
}

Answer answer_for(Function function, void* handle, const char* name, const void* caller) {
  const void* found = nullptr;
  if (handle == RTLD_NEXT) {
    // Only where railyard comes after the caller can it stand in for what comes after railyard.
    if (!intercept::in_global_scope()) return {};
    found = dlsym(RTLD_NEXT, name);
    if (found == nullptr) return nowhere(name);
  } else {
    found = handle == RTLD_DEFAULT ? find_by_default(name, caller) : dlsym(handle, name);
    const bool of_program = is_own_code(found);
    if (of_program) found = find_in_program(name);
    if (found == nullptr && (of_program || handle == RTLD_DEFAULT)) return nowhere(name);
  }
  const NcclLibrary* const copy = NcclLibrary::defining(found);
  if (copy == nullptr || copy->shares_object_with(caller)) return {};
  dlerror();
  return given(intercept::wrapper(function, copy->index));
}

}  // namespace

Answer answer_later() {
  refresh_imports();
  return {};
}

Answer answer_dlopen(const char* file, int mode, const void* caller) {
  refresh_imports();
  if (!independent_of_caller(file, caller)) return {};
  void* const handle = dlopen(file, mode);
  if (handle == nullptr) return given(nullptr);
  refresh_imports();
  return given(handle);
}

Answer answer_dlsym(void* handle, const char* name, const void* caller) {
  refresh_imports();
  if (name == nullptr) return {};
  const auto function = intercept::function_named(name);
  return function ? answer_for(*function, handle, name, caller) : Answer{};
}

}  // namespace railyard::loader
