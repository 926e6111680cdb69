// SPDX-License-Identifier: Apache-2.0
#include "comm/record.h"

namespace railyard::comm {
namespace {

void write_texts(wire::Writer& out, const std::vector<std::string>& texts) {
  out.u32(static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) out.text(text);
}

std::vector<std::string> read_texts(wire::Reader& in) {
  std::vector<std::string> texts(in.count(4));
  for (std::string& text : texts) text = in.text();
  return texts;
}

void write_pool(wire::Writer& out, const Pool& pool) {
  out.raw(pool.id);
  out.u8(static_cast<uint8_t>(pool.kind));
  out.u64(pool.bytes);
}

Pool read_pool(wire::Reader& in) {
  Pool pool;
  pool.id = read_secret(in);
  const uint8_t kind = in.u8();
  if (kind > static_cast<uint8_t>(device::MemoryKind::kDevice)) in.fail();
  pool.kind = static_cast<device::MemoryKind>(kind);
  pool.bytes = in.u64();
  return pool;
}

/// Kernels of other ranks go by these numbers.
bool inside(uint64_t offset, uint64_t bytes, const Pool& pool) {
  return offset <= pool.bytes && bytes <= pool.bytes - offset;
}

}  // namespace

wire::Bytes Introduction::encode() const {
  wire::Writer out;
  out.text(place.host);
  write_texts(out, place.nics);
  out.i32(place.nearest_nic);
  out.i32(place.rail_override);
  out.text(host_name);
  out.raw(process);
  out.boolean(nvlink);
  out.text(fabric);
  write_texts(out, settings);
  out.text(transport);
  out.text(trouble);
  out.boolean(server.address.family() != AF_UNSPEC);
  if (server.address.family() != AF_UNSPEC) server.encode(out);
  return out.take();
}

std::optional<Introduction> Introduction::decode(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  Introduction record;
  record.place.host = in.text();
  record.place.nics = read_texts(in);
  record.place.nearest_nic = in.i32();
  record.place.rail_override = in.i32();
  record.host_name = in.text();
  record.process = read_secret(in);
  record.nvlink = in.boolean();
  record.fabric = in.text();
  record.settings = read_texts(in);
  record.transport = in.text();
  record.trouble = in.text();
  if (in.boolean()) record.server = MeetingPoint::decode(in);
  if (!in.complete()) return std::nullopt;
  return record;
}

wire::Bytes Offer::encode() const {
  wire::Writer out;
  out.text(trouble);
  out.blob(address);
  out.u64(holding.staging_offset);
  out.u64(holding.staging_bytes);
  out.u64(holding.landing_offset);
  out.u64(holding.landing_bytes);
  out.u32(holding.first_tag);
  out.u32(holding.tags);
  write_pool(out, staging);
  write_pool(out, landing);
  out.text(unix_name);
  return out.take();
}

std::optional<Offer> Offer::decode(std::span<const std::byte> bytes) {
  wire::Reader in(bytes);
  Offer record;
  record.trouble = in.text();
  const auto address = in.blob();
  record.address.assign(address.begin(), address.end());
  record.holding.staging_offset = in.u64();
  record.holding.staging_bytes = in.u64();
  record.holding.landing_offset = in.u64();
  record.holding.landing_bytes = in.u64();
  record.holding.first_tag = in.u32();
  record.holding.tags = in.u32();
  record.staging = read_pool(in);
  record.landing = read_pool(in);
  record.unix_name = in.text();
  const exchange::Holding& holding = record.holding;
  if (!in.complete() || !inside(holding.staging_offset, holding.staging_bytes, record.staging) ||
      !inside(holding.landing_offset, holding.landing_bytes, record.landing) ||
      uint64_t{holding.first_tag} + holding.tags > transport::kMaxTag) {
    return std::nullopt;
  }
  return record;
}

std::string name_of(int rank, const Introduction& introduction) {
  return "rank " + std::to_string(rank) + " on " + introduction.host_name;
}

}  // namespace railyard::comm
