// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting_point.h"

#include <algorithm>
#include <cstring>

namespace railyard::comm {
namespace {

constexpr uint64_t kMark = 0x31594c4952a7c0deULL;

/// Not the number of any split.
constexpr uint64_t kShrinks = uint64_t{1} << 63;

/// A bijection that spreads every bit over all others (the finaliser of SplitMix64).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

Result<Secret> make_secret() {
  const Result<wire::Bytes> bytes = net::random_bytes(Secret().size());
  if (!bytes.ok()) return bytes.status();
  Secret secret{};
  std::copy(bytes->begin(), bytes->end(), secret.begin());
  return secret;
}

Secret read_secret(wire::Reader& in) {
  Secret secret{};
  const auto bytes = in.raw(secret.size());
  std::copy(bytes.begin(), bytes.end(), secret.begin());
  return secret;
}

void MeetingPoint::encode(wire::Writer& out) const {
  address.encode(out);
  out.raw(key);
  out.raw(meeting);
}

MeetingPoint MeetingPoint::decode(wire::Reader& in) {
  MeetingPoint point;
  point.address = net::SocketAddress::decode(in);
  point.key = read_secret(in);
  point.meeting = read_secret(in);
  return point;
}

MeetingPoint MeetingPoint::child(uint64_t number) const {
  MeetingPoint point = *this;
  uint64_t halves[2];
  static_assert(sizeof halves == sizeof point.meeting);
  std::memcpy(halves, meeting.data(), sizeof halves);
  halves[0] = mix(halves[0] + number + 1);
  halves[1] = mix(halves[1] ^ halves[0]);
  std::memcpy(point.meeting.data(), halves, sizeof halves);
  return point;
}

MeetingPoint MeetingPoint::shrunk(std::span<const int> excluded, uint64_t number) const {
  MeetingPoint point = child(kShrinks).child(number);
  for (const int rank : excluded) point = point.child(static_cast<uint64_t>(rank));
  return point;
}

std::array<std::byte, kMarkBytes> encode_mark(const MeetingPoint& point) {
  wire::Writer out;
  out.u64(kMark);
  out.u32(kProtocolVersion);
  point.encode(out);
  std::array<std::byte, kMarkBytes> bytes{};
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  return bytes;
}

std::optional<Mark> decode_mark(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  if (in.u64() != kMark) return std::nullopt;
  Mark mark;
  mark.version = in.u32();
  if (!in.ok()) return std::nullopt;
  if (mark.version != kProtocolVersion) return mark;
  mark.point = MeetingPoint::decode(in);
  if (!in.ok()) return std::nullopt;
  return mark;
}

}  // namespace railyard::comm
