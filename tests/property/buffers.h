// SPDX-License-Identifier: Apache-2.0
//
// Device memory that holds the messages of a rank, with guard bytes around each, and the
// reference they are compared with. Buffers are laid out first, then allocated all at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "random.h"

namespace property {

/// Names the contents of a message; the contents follow from the key and the position.
struct Content {
  uint64_t seed = 0;
  int exchange = 0, creation = 0, src = 0, dst = 0;
  int number = 0;  ///< of the message in its flow; -1: of an all-to-all
  uint64_t bytes = 0;

  uint64_t key() const;
  std::string describe() const;
};

void fill(const Content& content, std::byte* to);
/// First byte that is not as fill() made it, or content.bytes.
uint64_t first_difference(const Content& content, const std::byte* at);

class Arena {
 public:
  ~Arena();
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Forgets all buffers.
  void clear();
  /// Room for `contents` one after the other, at an odd address half of the time. Returns its
  /// offset.
  uint64_t add(Random& random, std::vector<Content> contents);
  /// Allocates what has been added, all of it guard bytes, on device and host. Synchronous.
  void allocate();
  /// Writes the contents into the host's copy.
  void fill_host();

  std::byte* device(uint64_t offset) const { return device_ + offset; }
  std::byte* host(uint64_t offset) const { return host_ + offset; }

  /// Copies the device's memory to the host and compares everything; empty if all is right, else
  /// what is wrong with the first wrong byte. `spoil` changes one byte first.
  std::string check(bool spoil);

 private:
  struct Buffer {
    uint64_t offset;
    Content content;
  };

  std::vector<Buffer> buffers_;  ///< by offset
  uint64_t bytes_ = 0, capacity_ = 0;
  std::byte* device_ = nullptr;
  std::byte* host_ = nullptr;
};

}  // namespace property
