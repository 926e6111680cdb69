// SPDX-License-Identifier: Apache-2.0
//
// Every range of memory that the driver knows: "device" memory (which is memory of this process),
// host memory it allocated or registered, and mapped physical memory (vmm.h).
//
// Fresh device memory is filled with a pattern up to kPoisonBytes, so that nobody comes to rely on
// zeros.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include <cuda.h>

namespace railyard::emulator {

class Context;

inline constexpr size_t kPoisonBytes = size_t{4} << 20;
inline constexpr int kPoison = 0xC5;

enum class MemoryKind {
  kDevice,      ///< cuMemAlloc, cuMemAllocAsync
  kManaged,     ///< cuMemAllocManaged
  kHost,        ///< cuMemHostAlloc
  kRegistered,  ///< cuMemHostRegister
  kMapped,      ///< cuMemMap
};

struct Allocation {
  uintptr_t base;
  size_t bytes;
  MemoryKind kind;
  int device;              ///< whose context made it; of kMapped memory where it lies, -1: host
  const Context* context;  ///< null for kMapped
  unsigned flags = 0;      ///< as the creating call got them
  uint64_t id = 0;         ///< never used twice
  bool accessible = true;  ///< false: mapped, but access not yet granted
  bool freeing = false;    ///< to be freed when a stream gets there

  uintptr_t end() const { return base + bytes; }
  bool on_device() const { return kind != MemoryKind::kHost && kind != MemoryKind::kRegistered; }
};

using AllocationPtr = std::shared_ptr<const Allocation>;

class MemoryMap {
 public:
  /// Fails (false) if the range overlaps another one. Registered host memory in the way is dropped
  /// when the new range is an allocation: its owner has freed it.
  bool insert(Allocation allocation);
  /// The range that contains `address`, or null.
  AllocationPtr find(uintptr_t address) const;
  /// All of [address, address + bytes) is known and accessible.
  bool covers(uintptr_t address, size_t bytes) const;
  /// Removes and returns the range that begins at `base` if it is of one of `kinds`.
  AllocationPtr take(uintptr_t base, std::initializer_list<MemoryKind> kinds);
  /// Marks kDevice memory as on its way out: take() for a second free fails; false if there is none
  /// or it is marked already.
  bool begin_free(uintptr_t base);
  AllocationPtr finish_free(uintptr_t base);
  /// Removes and returns all ranges of a context.
  std::vector<AllocationPtr> take_all(const Context& context);
  /// Removes ranges of kMapped memory that tile [base, base + bytes) exactly; false if they do not.
  bool take_mapped(uintptr_t base, size_t bytes);
  /// Marks mapped memory that tiles [base, base + bytes) as accessible or not; false if it does
  /// not.
  bool set_accessible(uintptr_t base, size_t bytes, bool accessible);
  /// Bytes of kDevice and kManaged memory on a device.
  size_t used(int device) const;

 private:
  using Map = std::map<uintptr_t, AllocationPtr>;
  Map::const_iterator containing(uintptr_t address) const;
  bool tiles(uintptr_t base, size_t bytes) const;

  mutable std::shared_mutex mutex_;
  Map ranges_;
  uint64_t next_id_ = 1;
};

MemoryMap& memory();

/// Device or host memory of the current context.
CUresult allocate(const Context& context, size_t bytes, MemoryKind kind, unsigned flags,
                  void** address);
/// Gives memory of allocate() back to the system. It is in no map any more.
void release(const Allocation& allocation);

inline uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace railyard::emulator
