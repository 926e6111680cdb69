// SPDX-License-Identifier: Apache-2.0
//
// Shared objects and the program as the dynamic loader holds them in memory: what they define, what
// they import and where. Reads the tables in memory only, so it takes none of the loader's locks
// and leaves dlerror() alone.
//
// A LoadedObject is a view: it is valid while the object stays loaded, so it belongs inside
// for_each_loaded_object() or to objects that are never unloaded.
#pragma once

#include <link.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace railyard {

/// A place in an object that holds the address of a function of another one.
struct Import {
  const char* name;
  uintptr_t* slot;
  bool weak;  ///< may stay null
  bool
      call;  ///< goes through the procedure linkage table: the loader may fill it at the first call
};

class LoadedObject {
 public:
  explicit LoadedObject(const dl_phdr_info& info);

  /// As the loader spells it; empty for the program itself.
  const std::string& path() const { return path_; }
  /// The last part of path().
  const char* file_name() const;
  uintptr_t base() const { return base_; }
  bool contains(const void* address) const {
    const auto value = reinterpret_cast<uintptr_t>(address);
    return begin_ <= value && value < end_;
  }
  uintptr_t begin() const { return begin_; }
  uintptr_t end() const { return end_; }

  /// Where it defines `name` for others; null if it does not.
  const void* find(const char* name) const;
  /// Whether it says itself where the libraries lie that it loads (RPATH, RUNPATH).
  bool has_search_path() const { return has_search_path_; }

  void for_each_import(const std::function<void(const Import&)>& visit) const;
  /// Its variables, words of memory that stays writable, and their values. What it has made
  /// inaccessible since is left out.
  void for_each_variable(
      const std::function<void(uintptr_t* variable, uintptr_t value)>& visit) const;
  /// Overwrites slots of this object, also those the loader has made read-only since. False if it
  /// could not; nothing is changed then. REQUIRES: called within for_each_loaded_object().
  struct Write {
    uintptr_t* slot;
    uintptr_t value;
  };
  bool write(const std::vector<Write>& writes) const;

 private:
  struct Range {
    uintptr_t begin = 0, end = 0;
    bool contains(uintptr_t value) const { return begin <= value && value < end; }
  };

  void read_dynamic(const ElfW(Dyn) * dynamic);
  bool defines(const ElfW(Sym) & symbol, const char* name) const;
  void visit_relocations(Range table, const std::function<void(const Import&)>& visit) const;

  std::string path_;
  uintptr_t base_ = 0, begin_ = 0, end_ = 0;
  std::vector<Range> writable_;
  Range read_only_;  ///< whole pages that are made read-only after relocation
  bool has_search_path_ = false;
  const char* strings_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const uint32_t* gnu_hash_ = nullptr;
  const uint32_t* hash_ = nullptr;
  Range relocations_, calls_;
};

/// Visits all objects in the order of loading, the program first, until `visit` returns false.
/// Visits of several threads follow one another; meanwhile nothing is loaded or unloaded.
void for_each_loaded_object(const std::function<bool(const LoadedObject&)>& visit);

/// Grows whenever something is loaded or unloaded. Cheap.
uint64_t loaded_objects_generation();

}  // namespace railyard
