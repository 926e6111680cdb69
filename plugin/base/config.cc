// SPDX-License-Identifier: Apache-2.0
#include "base/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

namespace railyard {
namespace {

using Type = Parameter::Type;
using Value = Parameter::Value;

// clang-format off
constexpr std::array kParameters = {
  Parameter{"RAILYARD_TRANSPORT", Type::kChoice, "auto", "auto|verbs|tcp", 0, 0,
    "What carries messages between nodes. auto uses verbs and leaves communicators to NCCL where "
    "there is no RDMA device.",
    "tcp",
    [](Config& c, Value v) { c.transport = static_cast<TransportKind>(v.number); }},
  Parameter{"RAILYARD_TCP_IFNAME", Type::kTextList, "", "", 0, 0,
    "Network interfaces for the data of transport tcp, written as in NCCL_SOCKET_IFNAME; CUDA device "
    "d uses the d-th, in turn. Unset: the one that NCCL_SOCKET_IFNAME leads to.",
    "eth",
    [](Config& c, Value v) {
      for (const std::string& name : v.texts) {
        c.tcp_interfaces += (c.tcp_interfaces.empty() ? "" : ",") + name;
      }
    }},
  Parameter{"RAILYARD_COMMS", Type::kChoice, "auto", "auto|all|off", 0, 0,
    "Which communicators are taken over: auto those with several nodes, one of them with several "
    "GPUs joined by NVLink; all also without NVLink; off none.",
    "off",
    [](Config& c, Value v) { c.comms = static_cast<CommsMode>(v.number); }},
  Parameter{"RAILYARD_RAILS", Type::kNumberList, "", "", 0, 1023,
    "Rail of each CUDA device of the process, or one number for all of them. Unset: the position "
    "of the nearest NIC.",
    "0,0,1,1",
    [](Config& c, Value v) { c.rails = std::move(v.numbers); }},
  Parameter{"RAILYARD_BUFFER_MB", Type::kNumber, "64", "", 1, 65536,
    "MiB of memory each GPU gives to messages on their way out, and as much again to those on "
    "their way in. Must be equal on all ranks.",
    "256",
    [](Config& c, Value v) { c.buffer_mb = v.number; }},
  Parameter{"RAILYARD_CTAS", Type::kNumber, "4", "", 1, 64,
    "Thread blocks of the exchange kernel. Must be equal on all ranks.",
    "8",
    [](Config& c, Value v) { c.ctas = v.number; }},
  Parameter{"RAILYARD_JOIN_S", Type::kNumber, "20", "", 1, 3600,
    "Seconds that ranks wait for each other when a communicator is made, before they leave it to "
    "NCCL.",
    "60",
    [](Config& c, Value v) { c.join_s = v.number; }},
  Parameter{"RAILYARD_QPS", Type::kNumber, "1", "", 1, 64,
    "Queue pairs to each other node and NIC, with verbs. Must be equal on all ranks.",
    "2",
    [](Config& c, Value v) { c.queue_pairs = v.number; }},
  Parameter{"RAILYARD_HOSTID", Type::kTextList, "", "", 0, 0,
    "Identity of this node instead of NCCL_HOSTID or host name and boot id. With commas: one for "
    "each CUDA device, to try several nodes inside one process.",
    "a,a,b,b",
    [](Config& c, Value v) { c.host_ids = std::move(v.texts); }},
  Parameter{"RAILYARD_RENDEZVOUS", Type::kHostPort, "", "", 0, 0,
    "Where ranks meet whose communicator was made before railyard was loaded, so that communicators "
    "split from it can be taken over; its rank 0 must be on that host. Unset: MASTER_ADDR, and "
    "MASTER_PORT + 711.",
    "node-0:29611",
    [](Config& c, Value v) { c.rendezvous = std::move(v.text); }},
  Parameter{"RAILYARD_NEXT_TUNER", Type::kText, "", "", 0, 0,
    "Tuner plugin that railyard passes NCCL's questions on to where NCCL_TUNER_PLUGIN names railyard. "
    "Named as NCCL_TUNER_PLUGIN would.",
    "libnccl-ofi-tuner.so",
    [](Config& c, Value v) { c.next_tuner = std::move(v.text); }},
  Parameter{"RAILYARD_DEBUG", Type::kChoice, "warn", "off|warn|info|trace", 0, 0,
    "How much is logged.",
    "info",
    [](Config& c, Value v) { c.debug = static_cast<log::Level>(v.number); }},
  Parameter{"RAILYARD_DEBUG_FILE", Type::kText, "", "", 0, 0,
    "File that log lines are appended to instead of stderr. %h is the host, %p the process.",
    "/tmp/railyard.%h.%p.log",
    [](Config& c, Value v) { c.debug_file = std::move(v.text); }},
  Parameter{"RAILYARD_STATS", Type::kText, "", "", 0, 0,
    "File that every rank of a communicator appends a line of JSON to: what railyard carried, when "
    "the communicator ends, or why NCCL keeps it. %h is the host, %p the process, %r the rank.",
    "/tmp/railyard-stats.%h.jsonl",
    [](Config& c, Value v) { c.stats_file = std::move(v.text); }},
};
// clang-format on

constexpr std::string_view kPrefix = "RAILYARD_";

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

std::optional<uint32_t> read_number(const Parameter& parameter, std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (number < parameter.least || number > parameter.most) return std::nullopt;
  return number;
}

std::optional<Value> read_value(const Parameter& parameter, const std::string& text) {
  Value value;
  switch (parameter.type) {
    case Type::kChoice: {
      const std::vector<std::string> choices = split(parameter.choices, '|');
      const auto found = std::find_if(choices.begin(), choices.end(), [&](const auto& choice) {
        return equal_ignoring_case(choice, text);
      });
      if (found == choices.end()) return std::nullopt;
      value.number = static_cast<uint32_t>(found - choices.begin());
      value.text = *found;
      return value;
    }
    case Type::kNumber: {
      const auto number = read_number(parameter, text);
      if (!number) return std::nullopt;
      value.number = *number;
      return value;
    }
    case Type::kNumberList:
      for (const std::string& part : split(text, ',')) {
        const auto number = read_number(parameter, part);
        if (!number) return std::nullopt;
        value.numbers.push_back(static_cast<int>(*number));
      }
      return value;
    case Type::kTextList:
      value.texts = split(text, ',');
      if (std::count(value.texts.begin(), value.texts.end(), "") != 0) return std::nullopt;
      return value;
    case Type::kHostPort:
      if (!split_host_port(text)) return std::nullopt;
      [[fallthrough]];
    case Type::kText:
      value.text = text;
      return value;
  }
  return std::nullopt;
}

/// Levenshtein's.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string default_for_people(const Parameter& parameter) {
  return *parameter.default_text == '\0' ? "unset" : parameter.default_text;
}

}  // namespace

std::string Parameter::accepted() const {
  switch (type) {
    case Type::kChoice: {
      std::string text;
      for (const std::string& choice : split(choices, '|')) {
        text += (text.empty() ? "" : ", ") + choice;
      }
      return text;
    }
    case Type::kNumber:
      return std::to_string(least) + " to " + std::to_string(most);
    case Type::kNumberList:
      return "numbers from " + std::to_string(least) + " to " + std::to_string(most) +
             ", separated by commas";
    case Type::kTextList:
      return "names, separated by commas";
    case Type::kText:
      return "a path";
    case Type::kHostPort:
      return "host:port";
  }
  return "";
}

std::span<const Parameter> parameters() { return kParameters; }

std::optional<HostPort> split_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // an IPv6 address, of which the port may or may not be part
  }
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || number == 0) {
    return std::nullopt;
  }
  return HostPort{std::string(host), number};
}

Result<Config> parse_config(const Environment& environment) {
  Config config;
  for (const Parameter& parameter : kParameters) {
    const auto set = environment.find(parameter.name);
    const bool given = set != environment.end() && !set->second.empty();
    const std::string text = given ? set->second : parameter.default_text;
    config.values[parameter.name] = text;
    if (text.empty()) continue;
    std::optional<Value> value = read_value(parameter, text);
    if (!value) {
      return Status::error(Code::kInvalidArgument, "%s=%s is not accepted: give %s (default: %s)",
                           parameter.name, text.c_str(), parameter.accepted().c_str(),
                           default_for_people(parameter).c_str());
    }
    if (parameter.type == Type::kChoice) config.values[parameter.name] = value->text;
    parameter.store(config, std::move(*value));
  }
  return config;
}

std::vector<std::string> unknown_parameters(const Environment& environment) {
  std::vector<std::string> sentences;
  for (auto set = environment.lower_bound(std::string(kPrefix));
       set != environment.end() && set->first.starts_with(kPrefix); ++set) {
    const std::string& name = set->first;
    const Parameter* nearest = nullptr;
    size_t least = name.size();
    for (const Parameter& parameter : kParameters) {
      const size_t distance = edit_distance(name, parameter.name);
      if (distance < least) {
        least = distance;
        nearest = &parameter;
      }
    }
    if (least == 0) continue;
    std::string sentence = name + " is set, but railyard has no such parameter";
    if (nearest != nullptr && least <= std::max<size_t>(1, (name.size() - kPrefix.size()) / 3))
      sentence += std::string("; is ") + nearest->name + " meant?";
    sentences.push_back(std::move(sentence));
  }
  return sentences;
}

std::string parameter_help() {
  std::string text;
  for (const Parameter& p : kParameters) {
    text += std::string(p.name) + "\n    " + p.meaning + "\n    accepted: " + p.accepted() +
            "; default: " + default_for_people(p) + "; example: " + p.name + "=" + p.example + "\n";
  }
  return text;
}

std::string parameter_table() {
  std::string text = "| Variable | Accepted | Default | Meaning |\n|---|---|---|---|\n";
  for (const Parameter& p : kParameters) {
    text += std::string("| `") + p.name + "` | " + p.accepted() + " | " + default_for_people(p) +
            " | " + p.meaning + " Example: `" + p.example + "` |\n";
  }
  return text;
}

}  // namespace railyard
