// SPDX-License-Identifier: Apache-2.0
//
// What two carriers tell each other, over a TCP connection of their own, to join their queue pairs.
//
//   dialling carrier                           accepting carrier
//   kHello: proof, who, NICs, queue pairs -->
//                                         <--  kWelcome: the same, its queue pairs ready to receive
//   (queue pairs ready to send)  kReady   -->  (queue pairs ready to send)
//        … RDMA in both directions …
//   kBye: how much was sent               <->  kBye
//
//   kYield: instead of kWelcome, "mine is under way": of two carriers that dial each other, the one
//           with the smaller identity wins.
//   kBroken: instead of any other, why the link is given up.
//
// A frame is 32 bits of length, then kind and body. Pure encoding and decoding; a body of anyone
// who does not know the key of the endpoint is refused. Bodies hold keys: never log them.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/wire.h"
#include "transport/verbs/gid.h"

namespace railyard::verbs {

inline constexpr uint32_t kMaxFrameBytes = 64 * 1024;
inline constexpr size_t kKeyBytes = 32;

enum class Frame : uint8_t { kHello = 1, kWelcome, kReady, kBye, kYield, kBroken };

/// Names one carrier for its life.
using Identity = std::array<uint8_t, 16>;
using Key = std::array<std::byte, kKeyBytes>;

/// Where and how a carrier can be dialled: what its transport::Address holds.
struct Endpoint {
  Identity identity{};
  Key key{};
  net::SocketAddress socket;
  uint32_t nics = 0;         ///< NICs it uses
  uint32_t queue_pairs = 1;  ///< RAILYARD_QPS

  wire::Bytes encode() const;
  /// Nothing if the bytes are not an endpoint of this version of railyard's verbs transport.
  static std::optional<Endpoint> decode(std::span<const std::byte> bytes);
};

/// Queue pairs of a link: one per NIC of the side with more of them, times RAILYARD_QPS.
uint32_t queue_pairs_between(const Endpoint& a, const Endpoint& b);

/// One NIC of a carrier, as the peer needs to know it.
struct NicRecord {
  std::string name;  ///< for messages: "rail 0 (mlx5_0 port 1)"
  uint8_t link_layer = 0;
  uint8_t mtu = 0;  ///< ibv_mtu
  uint16_t lid = 0;
  GidBytes gid{};
  uint32_t landing_key = 0;
};

/// One queue pair; its NIC follows from its position: position mod number of NICs.
struct QueuePairRecord {
  uint32_t number = 0;
  uint32_t first_psn = 0;
  bool has_ece = false;
  uint32_t ece_vendor = 0, ece_options = 0, ece_mask = 0;
};

/// kHello and kWelcome.
struct Introduction {
  Key peer_key{};  ///< of the endpoint spoken to
  Identity identity{};
  uint64_t landing_address = 0, landing_bytes = 0;
  std::vector<NicRecord> nics;
  std::vector<QueuePairRecord> queue_pairs;

  wire::Bytes encode(Frame kind) const;
  static std::optional<Introduction> decode(wire::Reader in);
};

/// kBye: writes that the receiver of this frame has still to see before it lets go.
wire::Bytes encode_bye(uint64_t writes);
wire::Bytes encode_text(Frame kind, const std::string& text);

}  // namespace railyard::verbs
