// SPDX-License-Identifier: Apache-2.0
//
// What a job's statistics (RAILYARD_STATS, one line of JSON per communicator and rank) add up to.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

namespace railyard::command {

struct Traffic {
  uint64_t messages = 0, bytes = 0;
};

struct Summary {
  uint64_t taken_over = 0;                     ///< ranks of communicators that railyard carried
  std::map<std::string, uint64_t> left;        ///< ranks of communicators that NCCL kept, by reason
  std::map<std::string, uint64_t> transports;  ///< of those taken over
  uint64_t exchanges = 0;
  Traffic phase1, phase2, local, self;
  uint64_t unreadable = 0;  ///< lines that are no statistics

  /// Adds all lines of `lines`.
  void add(std::istream& lines);
  /// A few sentences, each on a line.
  std::string text() const;
  nlohmann::json to_json() const;
};

}  // namespace railyard::command
