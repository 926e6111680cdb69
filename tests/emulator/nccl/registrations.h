// SPDX-License-Identifier: Apache-2.0
//
// What was registered with one communicator. Nothing gains from it here; it is kept so that handles
// mean something and misuse is seen. Thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

namespace railyard::emulator {

class Registrations {
 public:
  /// The handle of this memory, one for all times that it is registered.
  void* add(void* memory, size_t bytes);
  /// Takes back one add(). False: there is no such handle.
  bool remove(const void* handle);
  /// False: there is no such handle.
  bool find(const void* handle, void** memory);

 private:
  struct Entry {
    void* memory;
    size_t bytes;
    int uses;
  };
  std::list<Entry>::iterator locate(const void* handle);

  std::mutex mutex_;
  std::list<Entry> entries_;  ///< guarded by mutex_; handles are their addresses
};

}  // namespace railyard::emulator
