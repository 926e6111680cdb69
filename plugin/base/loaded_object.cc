// SPDX-License-Identifier: Apache-2.0
#include "base/loaded_object.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

namespace railyard {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kCallSlot = R_X86_64_JUMP_SLOT, kDataSlot = R_X86_64_GLOB_DAT,
                   kAbsolute = R_X86_64_64;
#elif defined(__aarch64__)
constexpr uint32_t kCallSlot = R_AARCH64_JUMP_SLOT, kDataSlot = R_AARCH64_GLOB_DAT,
                   kAbsolute = R_AARCH64_ABS64;
#else
#error "import tables are known for x86-64 and aarch64 only"
#endif

uint32_t gnu_hash_of(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

template <typename T>
const T* at(uintptr_t address) {
  return reinterpret_cast<const T*>(address);
}

}  // namespace

LoadedObject::LoadedObject(const dl_phdr_info& info)
    : path_(info.dlpi_name), base_(info.dlpi_addr), begin_(UINTPTR_MAX) {
  const auto page = static_cast<uintptr_t>(getpagesize());
  for (const ElfW(Phdr) & header : std::span(info.dlpi_phdr, info.dlpi_phnum)) {
    const uintptr_t first = base_ + header.p_vaddr, last = first + header.p_memsz;
    if (header.p_type == PT_LOAD) {
      begin_ = std::min(begin_, first);
      end_ = std::max(end_, last);
      if ((header.p_flags & PF_W) != 0) writable_.push_back({first, last});
    } else if (header.p_type == PT_GNU_RELRO) {
      read_only_ = {first & ~(page - 1), last & ~(page - 1)};
    } else if (header.p_type == PT_DYNAMIC) {
      read_dynamic(at<ElfW(Dyn)>(first));
    }
  }
}

void LoadedObject::read_dynamic(const ElfW(Dyn) * dynamic) {
  uintptr_t relocations_bytes = 0, calls_bytes = 0;
  bool calls_have_addend = true;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    // The loader has added the base to addresses, except where the table itself is read-only.
    uintptr_t address = dynamic->d_un.d_ptr;
    if (address < base_) address += base_;
    switch (dynamic->d_tag) {
      case DT_STRTAB:
        strings_ = at<char>(address);
        break;
      case DT_SYMTAB:
        symbols_ = at<ElfW(Sym)>(address);
        break;
      case DT_GNU_HASH:
        gnu_hash_ = at<uint32_t>(address);
        break;
      case DT_HASH:
        hash_ = at<uint32_t>(address);
        break;
      case DT_RELA:
        relocations_.begin = address;
        break;
      case DT_RELASZ:
        relocations_bytes = dynamic->d_un.d_val;
        break;
      case DT_JMPREL:
        calls_.begin = address;
        break;
      case DT_PLTRELSZ:
        calls_bytes = dynamic->d_un.d_val;
        break;
      case DT_PLTREL:
        calls_have_addend = dynamic->d_un.d_val == DT_RELA;
        break;
      case DT_RPATH:
      case DT_RUNPATH:
        has_search_path_ = true;
        break;
      default:
        break;
    }
  }
  relocations_.end = relocations_.begin + relocations_bytes;
  calls_.end = calls_.begin + (calls_have_addend ? calls_bytes : 0);
}

const char* LoadedObject::file_name() const {
  return path_.c_str() + (path_.rfind('/') == std::string::npos ? 0 : path_.rfind('/') + 1);
}

bool LoadedObject::defines(const ElfW(Sym) & symbol, const char* name) const {
  const auto binding = ELF64_ST_BIND(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF && (binding == STB_GLOBAL || binding == STB_WEAK) &&
         ELF64_ST_TYPE(symbol.st_info) != STT_TLS &&
         std::strcmp(strings_ + symbol.st_name, name) == 0;
}

const void* LoadedObject::find(const char* name) const {
  if (symbols_ == nullptr || strings_ == nullptr) return nullptr;
  const auto address = [this](const ElfW(Sym) & symbol) {
    return reinterpret_cast<const void*>(base_ + symbol.st_value);
  };
  if (gnu_hash_ != nullptr) {
    const uint32_t buckets = gnu_hash_[0], first = gnu_hash_[1], bloom_words = gnu_hash_[2];
    if (buckets == 0) return nullptr;
    const uint32_t* const bucket = gnu_hash_ + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t* const chain = bucket + buckets;
    const uint32_t hash = gnu_hash_of(name);
    uint32_t index = bucket[hash % buckets];
    if (index < first) return nullptr;
    for (;; ++index) {
      const uint32_t entry = chain[index - first];
      if ((entry | 1) == (hash | 1) && defines(symbols_[index], name)) {
        return address(symbols_[index]);
      }
      if ((entry & 1) != 0) return nullptr;
    }
  }
  // The older table is only asked how many symbols there are.
  const uint32_t count = hash_ == nullptr ? 0 : hash_[1];
  for (uint32_t index = 1; index < count; ++index) {
    if (defines(symbols_[index], name)) return address(symbols_[index]);
  }
  return nullptr;
}

void LoadedObject::visit_relocations(Range table,
                                     const std::function<void(const Import&)>& visit) const {
  for (uintptr_t entry = table.begin; entry < table.end; entry += sizeof(ElfW(Rela))) {
    const ElfW(Rela)& relocation = *at<ElfW(Rela)>(entry);
    const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
    const auto index = static_cast<uint32_t>(ELF64_R_SYM(relocation.r_info));
    if (index == 0 || relocation.r_addend != 0) continue;
    if (type != kCallSlot && type != kDataSlot && type != kAbsolute) continue;
    const uintptr_t slot = base_ + relocation.r_offset;
    if (slot % alignof(uintptr_t) != 0) continue;
    const ElfW(Sym)& symbol = symbols_[index];
    visit({strings_ + symbol.st_name, reinterpret_cast<uintptr_t*>(slot),
           ELF64_ST_BIND(symbol.st_info) == STB_WEAK, type == kCallSlot});
  }
}

void LoadedObject::for_each_import(const std::function<void(const Import&)>& visit) const {
  if (symbols_ == nullptr || strings_ == nullptr) return;
  visit_relocations(relocations_, visit);
  visit_relocations(calls_, visit);
}

void LoadedObject::for_each_variable(
    const std::function<void(uintptr_t* variable, uintptr_t value)>& visit) const {
  constexpr uintptr_t kWord = sizeof(uintptr_t);
  const auto page = static_cast<uintptr_t>(getpagesize());
  std::vector<uintptr_t> copy(page / kWord);
  for (const Range& range : writable_) {
    uintptr_t next = 0;
    for (uintptr_t at = (range.begin + kWord - 1) & ~(kWord - 1); at < range.end; at = next) {
      next = std::min((at & ~(page - 1)) + page, range.end);
      if (read_only_.contains(at)) continue;
      // Through the kernel, which fails where reading would end the process.
      const iovec into{copy.data(), next - at}, from{reinterpret_cast<void*>(at), next - at};
      const ssize_t got = process_vm_readv(getpid(), &into, 1, &from, 1, 0);
      for (ssize_t i = 0; i < got / static_cast<ssize_t>(kWord); ++i) {
        const auto index = static_cast<size_t>(i);
        visit(reinterpret_cast<uintptr_t*>(at) + index, copy[index]);
      }
    }
  }
}

bool LoadedObject::write(const std::vector<Write>& writes) const {
  bool sealed = false;
  for (const Write& one : writes) {
    const auto slot = reinterpret_cast<uintptr_t>(one.slot);
    if (std::none_of(writable_.begin(), writable_.end(),
                     [slot](const Range& range) { return range.contains(slot); })) {
      return false;
    }
    sealed = sealed || read_only_.contains(slot);
  }
  void* const pages = reinterpret_cast<void*>(read_only_.begin);
  const size_t bytes = read_only_.end - read_only_.begin;
  if (sealed && mprotect(pages, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  for (const Write& one : writes) {
    std::atomic_ref<uintptr_t>(*one.slot).store(one.value, std::memory_order_release);
  }
  if (sealed) mprotect(pages, bytes, PROT_READ);
  return true;
}

void for_each_loaded_object(const std::function<bool(const LoadedObject&)>& visit) {
  const auto callback = [](dl_phdr_info* info, size_t, void* argument) {
    const auto& body = *static_cast<const std::function<bool(const LoadedObject&)>*>(argument);
    return body(LoadedObject(*info)) ? 0 : 1;
  };
  dl_iterate_phdr(callback, const_cast<std::function<bool(const LoadedObject&)>*>(&visit));
}

uint64_t loaded_objects_generation() {
  uint64_t generation = 0;
  const auto callback = [](dl_phdr_info* info, size_t, void* argument) {
    *static_cast<uint64_t*>(argument) = info->dlpi_adds + info->dlpi_subs;
    return 1;
  };
  dl_iterate_phdr(callback, &generation);
  return generation;
}

}  // namespace railyard
