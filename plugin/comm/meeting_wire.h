// SPDX-License-Identifier: Apache-2.0
//
// What ranks and a meeting's server say to each other. Every message but the hello is a frame:
// 32 bits of length, then
//
//   rank to server    the rank's part of the round
//   server to rank    an Answer: everybody's parts by rank, or why there are none
//
// The hello has a fixed length; magic and version stand first in every version.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/wire.h"
#include "comm/meeting_point.h"

namespace railyard::comm {

/// The longest part of one rank.
inline constexpr uint32_t kMaxPartBytes = 64 * 1024;
inline constexpr uint32_t kMaxRanks = 1U << 20;

struct Hello {
  static constexpr size_t kHeadBytes = 12;  ///< magic and version
  static constexpr size_t kBytes = kHeadBytes + 16 + 16 + 4 + 4;

  uint32_t version = kProtocolVersion;
  Secret key{}, meeting{};
  uint32_t rank = 0, ranks = 0;

  wire::Bytes encode() const;
  /// The version, of at least kHeadBytes bytes; nothing if they are no hello at all.
  static std::optional<uint32_t> version_of(std::span<const std::byte> bytes);
  /// Of exactly kBytes bytes of this version; nothing if rank or ranks make no sense.
  static std::optional<Hello> decode(std::span<const std::byte> bytes);
};

struct Answer {
  enum class Kind : uint8_t {
    kGathered,      ///< `parts`
    kMissing,       ///< `ranks` did not come, or sent nothing, in time
    kLost,          ///< connections of `ranks` broke
    kOtherVersion,  ///< the server speaks `version`
  };
  Kind kind = Kind::kGathered;
  std::vector<wire::Bytes> parts;
  std::vector<uint32_t> ranks;
  uint32_t version = kProtocolVersion;

  /// With the length in front.
  wire::Bytes encode_frame() const;
  static std::optional<Answer> decode(std::span<const std::byte> bytes);
};

/// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, … and 40 more".
std::string rank_list(std::span<const uint32_t> ranks);

}  // namespace railyard::comm
