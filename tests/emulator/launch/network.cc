// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace railyard::emulator {
namespace {

constexpr int kMostRails = 128;  ///< of which 10.128 is the first address that is none
constexpr int kManagement = 128;
/// What goes out at once, and a link's rate is only kept beyond. Segments are made smaller than
/// that, so that tbf need not cut them up.
constexpr int kBurstBytes = 32 << 10;
constexpr int kSegmentBytes = 16 << 10;
constexpr int kMtu = 9000;
/// Holds all that TCP's windows let be under way.
constexpr int kQueueBytes = 64 << 20;

/// What every node sets for itself.
const std::map<std::string, std::string> kSettings = {
    // A NIC answers for its own address only.
    {"ipv4/conf/all/arp_ignore", "1"},        {"ipv4/conf/all/arp_announce", "2"},
    {"ipv4/conf/all/rp_filter", "0"},         {"ipv4/conf/default/rp_filter", "0"},
    {"ipv6/conf/default/disable_ipv6", "1"},  {"ipv4/tcp_rmem", "4096 131072 1048576"},
    {"ipv4/tcp_wmem", "4096 131072 1048576"}, {"ipv4/tcp_slow_start_after_idle", "0"},
    {"ipv4/tcp_no_metrics_save", "1"},
};

std::string host_address(int net, int node) {
  return fmt::format("10.{}.{}.{}", net, (node + 1) / 256, (node + 1) % 256);
}

std::string shaped(const std::string& device, int64_t mbit) {
  return fmt::format("qdisc add dev {} root tbf rate {}mbit burst {} limit {}\n", device, mbit,
                     kBurstBytes, kQueueBytes);
}

/// Commands for `ip -batch` in a node: its ports, whose other ends go to the switches of process
/// `switches`.
std::string node_links(const FabricKind& kind, int node, int gpus, pid_t switches) {
  std::string text = fmt::format(
      "link set lo up\n"
      "link add mgmt type veth peer name m{0} netns {1}\n"
      "addr add {2}/16 dev mgmt\n"
      "link set mgmt up\n",
      node, switches, host_address(kManagement, node));
  for (int rail = 0; rail < gpus; ++rail) {
    const std::string address = host_address(rail, node);
    const int table = 100 + rail;
    text += fmt::format(
        "link add rail{0} type veth peer name n{1}r{0} netns {2}\n"
        "addr add {3}/16 dev rail{0}\n"
        "link set rail{0} mtu {5} gso_max_size {6} up\n"
        "rule add from {3} table {4}\n"
        "route add 10.{0}.0.0/16 dev rail{0} table {4}\n",
        rail, node, switches, address, table, kMtu, kSegmentBytes);
    const bool joined = kind.oversubscription > 0;
    text += joined ? fmt::format("route add 10.0.0.0/9 dev rail{} table {}\n", rail, table)
                   : fmt::format("route add unreachable 10.0.0.0/9 table {}\n", table);
  }
  return text;
}

std::string switch_links(const FabricKind& kind, const std::vector<int>& gpus, int rails) {
  std::string text =
      "link set lo up\nlink add management type bridge\nlink set management up\n"
      "link add spine type bridge\nlink set spine up\n";
  const auto plug = [&text](const std::string& port, const std::string& bridge) {
    text += fmt::format("link set {0} mtu {2} master {1}\nlink set {0} up\n", port, bridge, kMtu);
  };
  for (int rail = 0; rail < rails; ++rail) {
    text += fmt::format("link add rail{0} type bridge\nlink set rail{0} up\n", rail);
    if (kind.oversubscription == 0) continue;
    text += fmt::format("link add up{0} type veth peer name down{0}\n", rail);
    plug(fmt::format("up{}", rail), fmt::format("rail{}", rail));
    plug(fmt::format("down{}", rail), "spine");
  }
  for (size_t node = 0; node < gpus.size(); ++node) {
    plug(fmt::format("m{}", node), "management");
    for (int rail = 0; rail < gpus[node]; ++rail) {
      plug(fmt::format("n{}r{}", node, rail), fmt::format("rail{}", rail));
    }
  }
  return text;
}

std::string node_rates(int gpus, int link_mbit) {
  std::string text;
  for (int rail = 0; rail < gpus; ++rail) text += shaped(fmt::format("rail{}", rail), link_mbit);
  return text;
}

std::string switch_rates(const FabricKind& kind, const std::vector<int>& gpus, int rails,
                         int link_mbit) {
  std::string text;
  for (int rail = 0; rail < rails; ++rail) {
    int64_t links = 0;
    for (size_t node = 0; node < gpus.size(); ++node) {
      if (rail >= gpus[node]) continue;
      ++links;
      text += shaped(fmt::format("n{}r{}", node, rail), link_mbit);
    }
    if (kind.oversubscription <= 1) continue;
    const int64_t uplink = std::max<int64_t>(links * link_mbit / kind.oversubscription, 1);
    text += shaped(fmt::format("up{}", rail), uplink) + shaped(fmt::format("down{}", rail), uplink);
  }
  return text;
}

/// What failed, in words; empty: nothing.
std::string failure(const std::string& what) { return what + ": " + ::strerror(errno); }

bool write_file(const std::string& path, const std::string& text) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() &&
         ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

/// Runs `ip` or `tc` with a batch of commands in a namespace.
std::string run_batch(int space, const char* tool, const std::string& commands) {
  int input[2], output[2];
  if (::pipe2(input, O_CLOEXEC) != 0 || ::pipe2(output, O_CLOEXEC) != 0) return failure("pipe");
  const pid_t pid = ::fork();
  if (pid < 0) return failure("fork");
  if (pid == 0) {
    ::dup2(input[0], STDIN_FILENO);
    ::dup2(output[1], STDOUT_FILENO);
    ::dup2(output[1], STDERR_FILENO);
    if (::setns(space, CLONE_NEWNET) == 0) {
      ::execlp(tool, tool, "-batch", "-", nullptr);
      ::dprintf(STDERR_FILENO, "cannot run %s: %s; install iproute2", tool, ::strerror(errno));
    }
    ::_exit(127);
  }
  ::close(input[0]);
  ::close(output[1]);
  // A tool that gives up stops reading; what it said comes first then.
  for (size_t done = 0; done < commands.size();) {
    const ssize_t n = ::write(input[1], commands.data() + done, commands.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  ::close(input[1]);
  std::string said;
  char buffer[1024];
  for (ssize_t n; (n = ::read(output[0], buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<size_t>(n));
  }
  ::close(output[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status == 0) return "";
  return fmt::format("{} cannot set the network up: {}", tool, said);
}

/// In a user namespace of its own a process that is not root may do all this.
std::string become_able() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (user == 0) return "";
  if (::unshare(CLONE_NEWUSER) != 0) return failure("needs root or user namespaces");
  write_file("/proc/self/setgroups", "deny");
  if (write_file("/proc/self/uid_map", fmt::format("0 {} 1", user)) &&
      write_file("/proc/self/gid_map", fmt::format("0 {} 1", group))) {
    return "";
  }
  return failure("mapping users into a namespace");
}

/// Moves the process into a new namespace. Invalid: errno says why.
UniqueFd new_space() {
  if (::unshare(CLONE_NEWNET) != 0) return UniqueFd();
  return UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
}

}  // namespace

const std::vector<FabricKind>& fabric_kinds() {
  static const std::vector<FabricKind> kinds = {
      {"flat", 1, "the spine blocks nothing"},
      {"rails-2", 2, "a rail's uplink has half the rate of its links together"},
      {"rails-4", 4, "a quarter"},
      {"rail-only", 0, "rails are not joined"},
  };
  return kinds;
}

const FabricKind* find_fabric(const std::string& name) {
  const std::vector<FabricKind>& kinds = fabric_kinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&name](const FabricKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

std::string Network::address(int node) { return host_address(kManagement, node); }

std::unique_ptr<Network> Network::make(const FabricKind& kind, const std::vector<int>& gpus,
                                       int link_mbit, std::string* error) {
  auto network = std::make_unique<Network>();
  *error = network->lay_out(kind, gpus, link_mbit);
  if (!error->empty()) network.reset();
  return network;
}

std::string Network::lay_out(const FabricKind& kind, const std::vector<int>& gpus, int link_mbit) {
  const int rails = *std::max_element(gpus.begin(), gpus.end());
  if (rails > kMostRails) return fmt::format("a node has at most {} links here", kMostRails);
  if (std::string error = become_able(); !error.empty()) return error;
  switches_ = new_space();
  if (!switches_.valid()) return failure("making a network namespace");
  for (size_t node = 0; node < gpus.size(); ++node) {
    nodes_.push_back(new_space());
    if (!nodes_.back().valid()) return failure("making a network namespace");
    for (const auto& [name, value] : kSettings) write_file("/proc/sys/net/" + name, value);
  }
  if (::setns(switches_.get(), CLONE_NEWNET) != 0) return failure("setns");
  write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");

  std::string error;
  for (size_t node = 0; error.empty() && node < gpus.size(); ++node) {
    error = run_batch(nodes_[node].get(), "ip",
                      node_links(kind, static_cast<int>(node), gpus[node], ::getpid()));
    if (error.empty()) {
      error = run_batch(nodes_[node].get(), "tc", node_rates(gpus[node], link_mbit));
    }
  }
  if (error.empty()) error = run_batch(switches_.get(), "ip", switch_links(kind, gpus, rails));
  if (!error.empty()) return error;
  return run_batch(switches_.get(), "tc", switch_rates(kind, gpus, rails, link_mbit));
}

}  // namespace railyard::emulator
