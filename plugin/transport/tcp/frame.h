// SPDX-License-Identifier: Apache-2.0
//
// What is on the wire between two TCP carriers, and in their addresses. All numbers little-endian.
//
//   connection:  hello  { frame }  goodbye
//   frame:       u32 type, u32 tag, u32 payload bytes, payload (cells only)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/socket.h"
#include "base/status.h"
#include "transport/transport.h"

namespace railyard::transport::tcp {

/// 128 random bits: the name of a carrier, or its secret.
using Token = std::array<std::byte, 16>;
Result<Token> random_token();

/// A carrier as others reach it.
struct Endpoint {
  net::SocketAddress at;
  Token id{};      ///< the same carrier, the same id
  Token secret{};  ///< who connects must know it

  Address encode() const;
  static Result<Endpoint> decode(const Address& address);
};

inline constexpr size_t kHelloBytes = 38;
using Hello = std::array<std::byte, kHelloBytes>;
Hello encode_hello(const Token& acceptor_secret, const Token& opener_id);
/// The opener's id, or nothing if this is not the hello of somebody who knows `secret`.
std::optional<Token> prove_hello(std::span<const std::byte> hello, const Token& secret);

enum class FrameType : uint32_t { kCell = 1, kCredit = 2, kGoodbye = 3 };

inline constexpr size_t kHeadBytes = 12;
struct FrameHead {
  FrameType type = FrameType::kGoodbye;  ///< as received: may be none of the above
  uint32_t tag = 0;
  uint32_t bytes = 0;

  void encode(std::byte* to) const;
  static FrameHead decode(const std::byte* from);
};

}  // namespace railyard::transport::tcp
