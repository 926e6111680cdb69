// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a communicator meet, and how that travels in a unique id.
//
// NCCL fills the last 64 bytes of an id with zeros and never reads them. The process that makes an
// id writes there {mark, protocol version, meeting point}; the id reaches every rank by whatever
// way the program uses. The key must not be logged: it is all that proves a connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/socket.h"
#include "base/status.h"
#include "base/wire.h"

namespace railyard::comm {

/// Of everything in this folder that goes over sockets. Other versions are refused.
inline constexpr uint32_t kProtocolVersion = 1;

/// 16 bytes that nobody can guess.
using Secret = std::array<std::byte, 16>;
Result<Secret> make_secret();
Secret read_secret(wire::Reader& in);

struct MeetingPoint {
  net::SocketAddress address;  ///< of the server
  Secret key{};                ///< of the server
  Secret meeting{};            ///< names one meeting at it

  void encode(wire::Writer& out) const;
  static MeetingPoint decode(wire::Reader& in);

  /// The point, at the same server, for the ranks of the `number`th split of this meeting's
  /// communicator. All ranks that know this point compute the same.
  MeetingPoint child(uint64_t number) const;
  /// The same for the ranks that are left when `excluded`, in rising order, are shrunk away for the
  /// `number`th time. Never that of a split.
  MeetingPoint shrunk(std::span<const int> excluded, uint64_t number) const;
};

inline constexpr size_t kMarkBytes = 64;

/// Bytes for the end of an id, zeros where nothing is written.
std::array<std::byte, kMarkBytes> encode_mark(const MeetingPoint& point);

struct Mark {
  uint32_t version = 0;
  std::optional<MeetingPoint> point;  ///< only for kProtocolVersion
};
/// Nothing if `bytes` hold no mark.
std::optional<Mark> decode_mark(std::span<const std::byte> bytes);

}  // namespace railyard::comm
