// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/frame.h"

#include <algorithm>

#include "base/wire.h"

namespace railyard::transport::tcp {
namespace {

constexpr uint32_t kMagic = 0x79725431;
constexpr uint16_t kVersion = 1;

Token token_of(std::span<const std::byte> bytes) {
  Token token{};
  if (bytes.size() == token.size()) std::copy(bytes.begin(), bytes.end(), token.begin());
  return token;
}

void put(uint32_t value, std::byte* to) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

uint32_t get(const std::byte* from) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= std::to_integer<uint32_t>(from[i]) << (8 * i);
  return value;
}

}  // namespace

Result<Token> random_token() {
  Result<wire::Bytes> bytes = net::random_bytes(sizeof(Token));
  if (!bytes.ok()) return bytes.status();
  return token_of(*bytes);
}

Address Endpoint::encode() const {
  wire::Writer out;
  out.u32(kMagic);
  out.u16(kVersion);
  at.encode(out);
  out.raw(id);
  out.raw(secret);
  return out.take();
}

Result<Endpoint> Endpoint::decode(const Address& address) {
  wire::Reader in(address);
  if (in.u32() != kMagic || in.u16() != kVersion) {
    return Status::error(Code::kInvalidArgument,
                         "a peer's address is not one of the tcp transport of this version; run "
                         "the same railyard with the same RAILYARD_TRANSPORT on all nodes");
  }
  Endpoint endpoint;
  endpoint.at = net::SocketAddress::decode(in);
  endpoint.id = token_of(in.raw(sizeof(Token)));
  endpoint.secret = token_of(in.raw(sizeof(Token)));
  if (!in.complete()) {
    return Status::error(Code::kInvalidArgument,
                         "a peer's tcp address is damaged (%zu bytes); run the same railyard on "
                         "all nodes",
                         address.size());
  }
  return endpoint;
}

Hello encode_hello(const Token& acceptor_secret, const Token& opener_id) {
  wire::Writer out;
  out.u32(kMagic);
  out.u16(kVersion);
  out.raw(acceptor_secret);
  out.raw(opener_id);
  Hello hello{};
  std::copy(out.bytes().begin(), out.bytes().end(), hello.begin());
  return hello;
}

std::optional<Token> prove_hello(std::span<const std::byte> hello, const Token& secret) {
  wire::Reader in(hello);
  if (in.u32() != kMagic || in.u16() != kVersion) return std::nullopt;
  const bool knows = net::equal_secrets(in.raw(sizeof(Token)), secret);
  const Token id = token_of(in.raw(sizeof(Token)));
  if (!knows || !in.complete()) return std::nullopt;
  return id;
}

void FrameHead::encode(std::byte* to) const {
  put(static_cast<uint32_t>(type), to);
  put(tag, to + 4);
  put(bytes, to + 8);
}

FrameHead FrameHead::decode(const std::byte* from) {
  return {static_cast<FrameType>(get(from)), get(from + 4), get(from + 8)};
}

}  // namespace railyard::transport::tcp
