// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting_wire.h"

#include <algorithm>

namespace railyard::comm {
namespace {

constexpr uint64_t kHelloMagic = 0x6f6c6c65680a5279ULL;

}  // namespace

wire::Bytes Hello::encode() const {
  wire::Writer out;
  out.u64(kHelloMagic);
  out.u32(version);
  out.raw(key);
  out.raw(meeting);
  out.u32(rank);
  out.u32(ranks);
  return out.take();
}

std::optional<uint32_t> Hello::version_of(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  if (in.u64() != kHelloMagic) return std::nullopt;
  const uint32_t version = in.u32();
  if (!in.ok()) return std::nullopt;
  return version;
}

std::optional<Hello> Hello::decode(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  in.u64();
  Hello hello;
  hello.version = in.u32();
  hello.key = read_secret(in);
  hello.meeting = read_secret(in);
  hello.rank = in.u32();
  hello.ranks = in.u32();
  if (!in.complete() || hello.ranks > kMaxRanks || hello.rank >= hello.ranks) return std::nullopt;
  return hello;
}

wire::Bytes Answer::encode_frame() const {
  wire::Writer body;
  body.u8(static_cast<uint8_t>(kind));
  body.u32(version);
  body.u32(static_cast<uint32_t>(ranks.size()));
  for (const uint32_t rank : ranks) body.u32(rank);
  body.u32(static_cast<uint32_t>(parts.size()));
  for (const wire::Bytes& part : parts) body.blob(part);
  wire::Writer frame;
  frame.blob(body.bytes());
  return frame.take();
}

std::optional<Answer> Answer::decode(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  Answer answer;
  const uint8_t kind = in.u8();
  if (kind > static_cast<uint8_t>(Kind::kOtherVersion)) return std::nullopt;
  answer.kind = static_cast<Kind>(kind);
  answer.version = in.u32();
  const uint32_t ranks = in.count(4);
  for (uint32_t i = 0; i < ranks; ++i) answer.ranks.push_back(in.u32());
  const uint32_t parts = in.count(4);
  for (uint32_t i = 0; i < parts; ++i) {
    const auto part = in.blob();
    answer.parts.emplace_back(part.begin(), part.end());
  }
  if (!in.complete()) return std::nullopt;
  return answer;
}

std::string rank_list(std::span<const uint32_t> ranks) {
  constexpr size_t kNamed = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t named = std::min(ranks.size(), kNamed);
  for (size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (named < ranks.size()) text += " and " + std::to_string(ranks.size() - named) + " more";
  return text;
}

}  // namespace railyard::comm
