// SPDX-License-Identifier: Apache-2.0
//
// Passes on what a rank writes, line by line, each line behind the rank's tag and written whole.
//
// Thread-bound.
#pragma once

#include <string>

namespace railyard::emulator {

class TaggedOutput {
 public:
  /// Reads from `source` (owned, made non-blocking), writes to `target` (borrowed).
  TaggedOutput(int rank, int source, int target);
  TaggedOutput(TaggedOutput&& other) noexcept;
  TaggedOutput& operator=(TaggedOutput&&) = delete;
  ~TaggedOutput();

  int source() const { return source_; }
  /// Passes on all that can be read now; false at the end of the stream.
  bool pump();

 private:
  void flush_lines(bool also_last);

  const std::string tag_;
  int source_;
  const int target_;
  std::string pending_;
};

}  // namespace railyard::emulator
