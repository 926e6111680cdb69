// SPDX-License-Identifier: Apache-2.0
//
// The tuner that RAILYARD_NEXT_TUNER names, behind one interface: a site's own tuner keeps working
// although railyard takes its place in NCCL_TUNER_PLUGIN.
//
// Where NCCL speaks another version of the interface than the tuner, calls are translated, as NCCL
// itself does for old tuners. What an old NCCL does not know (hash, costs) cannot be made up: the
// tuner's newest version that needs nothing more than NCCL tells is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "loader/tuner_abi.h"

namespace railyard::loader {

/// What NCCL says when a communicator is made.
struct TunerStart {
  size_t ranks = 0, nodes = 0;
  tuner::Logger logger = nullptr;
  uint64_t hash = 0;                      ///< from version 5 on
  tuner::DomainInfo* domains = nullptr;   ///< from version 5 on
  tuner::Constants* constants = nullptr;  ///< from version 5 on
};

/// A question of version 3 or later.
struct TunerQuestion {
  tuner::Collective collective{};
  size_t bytes = 0;
  int pipelined = 0;
  tuner::CostTable costs = nullptr;
  int algorithms = 0, protocols = 0;
  int registered = 0;  ///< from version 4 on
  int* channels = nullptr;
};

/// One version of another tuner. Immutable; thread-safe as far as the tuner is.
class NextTuner {
 public:
  /// For an NCCL that speaks `version` of the interface. Null: there is no other tuner, or none
  /// that can be used (logged once).
  static const NextTuner* get(int version);

  ncclResult_t init(const TunerStart& start, void** context) const;
  ncclResult_t get_info(void* context, const TunerQuestion& question) const;
  /// REQUIRES: get(2).
  ncclResult_t get_info_v2(void* context, tuner::Collective collective, size_t bytes, int collnet,
                           int nvls, int pipelined, int* algorithm, int* protocol,
                           int* channels) const;
  ncclResult_t get_chunk_size(void* context, tuner::Collective collective, size_t bytes,
                              int algorithm, int protocol, int channels, size_t* chunk) const;
  ncclResult_t finish(void* context) const;

  /// `symbols[n]` is what the tuner exports for version n, null where it has none.
  static constexpr int kOldest = 2, kNewest = 6;
  static std::optional<NextTuner> choose(const void* const (&symbols)[kNewest + 1], int version);
  int version() const { return version_; }

 private:
  NextTuner(int version, const void* table) : version_(version), table_(table) {}
  template <typename Table>
  const Table& as() const {
    return *static_cast<const Table*>(table_);
  }
  ncclResult_t get_info_by_costs(void* context, const TunerQuestion& question) const;

  int version_;
  const void* table_;
};

}  // namespace railyard::loader
