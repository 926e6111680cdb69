// SPDX-License-Identifier: Apache-2.0
#include "summary.h"

namespace railyard::command {
namespace {

using nlohmann::json;

std::string amount(const Traffic& traffic) {
  return std::to_string(traffic.messages) + " messages, " + std::to_string(traffic.bytes) +
         " bytes";
}

json object(const Traffic& traffic) {
  return {{"messages", traffic.messages}, {"bytes", traffic.bytes}};
}

void add_traffic(const json& line, const std::string& name, Traffic* to) {
  to->messages += line.value(name + "_messages", uint64_t{0});
  to->bytes += line.value(name + "_bytes", uint64_t{0});
}

}  // namespace

void Summary::add(std::istream& lines) {
  for (std::string text; std::getline(lines, text);) {
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object()) {
      ++unreadable;
    } else if (line.contains("left")) {
      ++left[line.value("left", "")];
    } else {
      ++taken_over;
      ++transports[line.value("transport", "?")];
      exchanges += line.value("exchanges", uint64_t{0});
      add_traffic(line, "phase1", &phase1);
      add_traffic(line, "phase2", &phase2);
      add_traffic(line, "local", &local);
      add_traffic(line, "self", &self);
    }
  }
}

std::string Summary::text() const {
  if (taken_over == 0 && left.empty()) {
    return "nothing was intercepted: the program made no NCCL communicator of several ranks, or "
           "reached NCCL by a way that cannot be seen from outside (statically linked), or was "
           "killed before it ended one\n";
  }
  std::string result;
  if (taken_over > 0) {
    std::string by;
    for (const auto& [name, count] : transports) by += (by.empty() ? "" : ", ") + name;
    result += "taken over: communicators with " + std::to_string(taken_over) +
              " ranks in all, over " + by + "; " + std::to_string(exchanges) + " exchanges\n";
    result += "  between nodes, along the rail:  " + amount(phase1) + "\n";
    result += "  of these pulled inside nodes:   " + amount(phase2) + "\n";
    result += "  inside nodes:                   " + amount(local) + "\n";
    result += "  to oneself:                     " + amount(self) + "\n";
  }
  for (const auto& [why, count] : left) {
    result += "left to NCCL, " + std::to_string(count) + " ranks: " + why + "\n";
  }
  if (unreadable > 0) {
    result += std::to_string(unreadable) + " lines of the statistics could not be read\n";
  }
  return result;
}

json Summary::to_json() const {
  return {{"taken_over_ranks", taken_over}, {"left", left},
          {"transports", transports},       {"exchanges", exchanges},
          {"phase1", object(phase1)},       {"phase2", object(phase2)},
          {"local", object(local)},         {"self", object(self)},
          {"unreadable", unreadable}};
}

}  // namespace railyard::command
