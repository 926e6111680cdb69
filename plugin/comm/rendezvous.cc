// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

namespace railyard::comm {
namespace {

bool is_loopback(const net::SocketAddress& address) {
  if (address.family() == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address.get());
    return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const auto* in = reinterpret_cast<const sockaddr_in6*>(address.get());
  return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr) != 0;
}

constexpr uint64_t kKeyNumber = 0x6b6579, kNameNumber = 0x6e616d65;

}  // namespace

std::optional<HostPort> find_rendezvous(const Config& config, const NcclEnv& environment) {
  if (!config.rendezvous.empty()) return split_host_port(config.rendezvous);
  const std::string host = environment.text("MASTER_ADDR");
  const int64_t port = environment.number("MASTER_PORT", 0);
  if (host.empty() || port <= 0 || port > UINT16_MAX) return std::nullopt;
  const int64_t ours = port + kRendezvousOffset;
  return HostPort{host,
                  static_cast<uint16_t>(ours <= UINT16_MAX ? ours : port - kRendezvousOffset)};
}

Result<net::SocketAddress> resolve(const HostPort& place) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failure = getaddrinfo(place.host.c_str(), nullptr, &hints, &list);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, [](addrinfo* l) {
    if (l != nullptr) freeaddrinfo(l);
  });
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* entry = list; failure == 0 && entry != nullptr; entry = entry->ai_next) {
      auto address = net::SocketAddress::from(entry->ai_addr);
      if (!address || address->family() != family) continue;
      address->set_port(place.port);
      return *address;
    }
  }
  return Status::error(Code::kUnavailable,
                       "the rendezvous host %s has no address: %s (RAILYARD_RENDEZVOUS names "
                       "another)",
                       place.host.c_str(), failure == 0 ? "none found" : gai_strerror(failure));
}

net::SocketAddress listening_address(const HostPort& place, const net::SocketAddress& resolved) {
  const bool literal = net::SocketAddress::parse(place.host, 0).ok() || place.host == "localhost";
  if (literal || !is_loopback(resolved)) return resolved;
  auto any = net::SocketAddress::parse(resolved.family() == AF_INET ? "0.0.0.0" : "::", place.port);
  return any.ok() ? *any : resolved;
}

MeetingPoint point_of_hash(uint64_t hash, int ranks) {
  MeetingPoint seed;
  const uint64_t halves[2] = {hash, static_cast<uint64_t>(ranks)};
  static_assert(sizeof halves == sizeof seed.meeting);
  std::memcpy(seed.meeting.data(), halves, sizeof halves);
  MeetingPoint point;
  point.key = seed.child(kKeyNumber).meeting;
  point.meeting = seed.child(kNameNumber).meeting;
  return point;
}

}  // namespace railyard::comm
