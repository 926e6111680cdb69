// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/handshake.h"

#include <algorithm>
#include <cstring>

namespace railyard::verbs {
namespace {

constexpr uint32_t kMark = 0x52595632;  // says "railyard verbs" and the version of all this
constexpr uint32_t kMaxNics = 64;
constexpr uint32_t kMaxQueuePairs = 1024;

template <typename Bytes>
void put(wire::Writer& out, const Bytes& bytes) {
  out.raw(std::as_bytes(std::span(bytes)));
}

template <typename Bytes>
void get(wire::Reader& in, Bytes* bytes) {
  const auto from = in.raw(bytes->size());
  if (from.size() == bytes->size()) std::memcpy(bytes->data(), from.data(), from.size());
}

wire::Writer begin(Frame kind) {
  wire::Writer out;
  out.u8(static_cast<uint8_t>(kind));
  return out;
}

}  // namespace

wire::Bytes Endpoint::encode() const {
  wire::Writer out;
  out.u32(kMark);
  put(out, identity);
  put(out, key);
  socket.encode(out);
  out.u32(nics);
  out.u32(queue_pairs);
  return out.take();
}

std::optional<Endpoint> Endpoint::decode(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  Endpoint endpoint;
  const bool marked = in.u32() == kMark;
  get(in, &endpoint.identity);
  get(in, &endpoint.key);
  endpoint.socket = net::SocketAddress::decode(in);
  endpoint.nics = in.u32();
  endpoint.queue_pairs = in.u32();
  const bool sane = endpoint.nics >= 1 && endpoint.nics <= kMaxNics && endpoint.queue_pairs >= 1 &&
                    endpoint.queue_pairs <= kMaxQueuePairs / kMaxNics * 4;
  if (!marked || !sane || !in.complete()) return std::nullopt;
  return endpoint;
}

uint32_t queue_pairs_between(const Endpoint& a, const Endpoint& b) {
  return std::min(std::max(a.nics, b.nics) * std::max(a.queue_pairs, b.queue_pairs),
                  kMaxQueuePairs);
}

wire::Bytes Introduction::encode(Frame kind) const {
  wire::Writer out = begin(kind);
  out.u32(kMark);
  put(out, peer_key);
  put(out, identity);
  out.u64(landing_address);
  out.u64(landing_bytes);
  out.u32(static_cast<uint32_t>(nics.size()));
  for (const NicRecord& nic : nics) {
    out.text(nic.name);
    out.u8(nic.link_layer);
    out.u8(nic.mtu);
    out.u16(nic.lid);
    put(out, nic.gid);
    out.u32(nic.landing_key);
  }
  out.u32(static_cast<uint32_t>(queue_pairs.size()));
  for (const QueuePairRecord& pair : queue_pairs) {
    out.u32(pair.number);
    out.u32(pair.first_psn);
    out.boolean(pair.has_ece);
    out.u32(pair.ece_vendor);
    out.u32(pair.ece_options);
    out.u32(pair.ece_mask);
  }
  return out.take();
}

std::optional<Introduction> Introduction::decode(wire::Reader in) {
  Introduction self;
  if (in.u32() != kMark) in.fail();
  get(in, &self.peer_key);
  get(in, &self.identity);
  self.landing_address = in.u64();
  self.landing_bytes = in.u64();
  self.nics.resize(in.count(28));
  for (NicRecord& nic : self.nics) {
    nic.name = in.text();
    nic.link_layer = in.u8();
    nic.mtu = in.u8();
    nic.lid = in.u16();
    get(in, &nic.gid);
    nic.landing_key = in.u32();
  }
  self.queue_pairs.resize(in.count(21));
  for (QueuePairRecord& pair : self.queue_pairs) {
    pair.number = in.u32();
    pair.first_psn = in.u32();
    pair.has_ece = in.boolean();
    pair.ece_vendor = in.u32();
    pair.ece_options = in.u32();
    pair.ece_mask = in.u32();
  }
  if (!in.complete() || self.nics.empty()) return std::nullopt;
  return self;
}

wire::Bytes encode_bye(uint64_t writes) {
  wire::Writer out = begin(Frame::kBye);
  out.u64(writes);
  return out.take();
}

wire::Bytes encode_text(Frame kind, const std::string& text) {
  wire::Writer out = begin(kind);
  out.text(text);
  return out.take();
}

}  // namespace railyard::verbs
