// SPDX-License-Identifier: Apache-2.0
#include "base/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <memory>

#include "base/name_list.h"

namespace railyard::net {
namespace {

bool reachable(const sockaddr* address) {
  if (address->sa_family == AF_INET) return true;
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return !IN6_IS_ADDR_LOOPBACK(&v6) && !IN6_IS_ADDR_LINKLOCAL(&v6);
}

/// Smaller is better.
int preference(const std::string& name) {
  if (name.starts_with("ib")) return 0;
  if (name.starts_with("docker")) return 2;
  if (name == "lo") return 3;
  if (name.starts_with("virbr")) return 4;
  return 1;
}

std::string names_of(std::span<const Interface> interfaces) {
  std::string names;
  for (const Interface& interface : interfaces) {
    if (!names.empty()) names += ", ";
    names += interface.name;
    names += interface.address.family() == AF_INET ? " (IPv4)" : " (IPv6)";
  }
  return names.empty() ? "none" : names;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return Status::system(errno, "cannot list network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_RUNNING) == 0) continue;
    const auto address = SocketAddress::from(entry->ifa_addr);
    if (!address || !reachable(entry->ifa_addr)) continue;
    interfaces.push_back({entry->ifa_name, *address});
  }
  return interfaces;
}

Result<Interface> choose_interface(std::span<const Interface> interfaces, const NcclEnv& nccl) {
  const std::string family_name = nccl.text("NCCL_SOCKET_FAMILY");
  const int family = family_name == "AF_INET"    ? AF_INET
                     : family_name == "AF_INET6" ? AF_INET6
                                                 : AF_UNSPEC;
  std::string wanted = nccl.text("NCCL_SOCKET_IFNAME");
  if (wanted.size() <= 1) wanted.clear();
  const NameList list = NameList::parse(wanted, false);

  const Interface* best = nullptr;
  for (const Interface& interface : interfaces) {
    if (family != AF_UNSPEC && interface.address.family() != family) continue;
    if (!list.matches(interface.name)) continue;
    if (best == nullptr ||
        (wanted.empty() && preference(interface.name) < preference(best->name))) {
      best = &interface;
    }
  }
  if (best != nullptr) return *best;
  return Status::error(Code::kUnavailable,
                       "no network interface fits NCCL_SOCKET_IFNAME='%s' and "
                       "NCCL_SOCKET_FAMILY='%s'; there are: %s",
                       wanted.c_str(), family_name.c_str(), names_of(interfaces).c_str());
}

Result<Interface> data_interface(std::span<const Interface> interfaces, const std::string& names,
                                 int device) {
  const NameList list = NameList::parse(names, false);
  std::vector<const Interface*> fitting;
  for (const Interface& interface : interfaces) {
    if (!list.matches(interface.name)) continue;
    if (!fitting.empty() && fitting[0]->address.family() != interface.address.family()) continue;
    fitting.push_back(&interface);
  }
  if (!fitting.empty()) return *fitting[static_cast<size_t>(device) % fitting.size()];
  return Status::error(Code::kUnavailable, "no network interface fits '%s'; there are: %s",
                       names.c_str(), names_of(interfaces).c_str());
}

}  // namespace railyard::net
