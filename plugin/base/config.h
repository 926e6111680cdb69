// SPDX-License-Identifier: Apache-2.0
//
// What users can set. One table describes every RAILYARD_ variable; parsing, help, the table in
// the README and the warning about names that do not exist all come from it.
//
//   Result<Config> config = parse_config(process_environment());
//   if (!config.ok()) stay_off(config.status());   // names variable, value and what is accepted
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "base/status.h"

namespace railyard {

enum class TransportKind : uint8_t { kAuto, kVerbs, kTcp };
enum class CommsMode : uint8_t { kAuto, kAll, kOff };

/// Read once, never changed.
struct Config {
  std::map<std::string, std::string> values;  ///< every parameter as text, defaults included
  TransportKind transport = TransportKind::kAuto;
  std::string tcp_interfaces;  ///< empty: not set
  CommsMode comms = CommsMode::kAuto;
  std::vector<int> rails;  ///< by CUDA device; one entry: for all; empty: not set
  uint32_t buffer_mb = 0;
  uint32_t ctas = 0;
  uint32_t join_s = 0;
  uint32_t queue_pairs = 0;
  std::vector<std::string> host_ids;  ///< by CUDA device; one entry: for all; empty: not set
  std::string rendezvous;             ///< "host:port"; empty: not set
  std::string next_tuner;             ///< empty: not set
  log::Level debug = log::Level::kWarn;
  std::string debug_file;  ///< a file template
  std::string stats_file;  ///< a file template
};

struct Parameter {
  enum class Type : uint8_t { kChoice, kNumber, kNumberList, kTextList, kText, kHostPort };

  const char* name;
  Type type;
  const char*
      default_text;      ///< as a user would write it; "" where unset means something of its own
  const char* choices;   ///< kChoice: "a|b|c", in the order of the enumeration it feeds
  uint32_t least, most;  ///< kNumber, kNumberList: accepted range
  const char* meaning;
  const char* example;

  /// What a value was read as; only the members its type fills.
  struct Value {
    uint32_t number = 0;  ///< kNumber, and the position in `choices` of a kChoice
    std::vector<int> numbers;
    std::vector<std::string> texts;
    std::string text;  ///< kText, kHostPort, and the spelling of `choices` of a kChoice
  };
  void (*store)(Config& config, Value value);

  /// "auto, verbs, tcp", "1 to 64", …
  std::string accepted() const;
};

std::span<const Parameter> parameters();

/// "host:port" or "[address]:port" in its two parts, brackets removed; nothing if it is neither.
struct HostPort {
  std::string host;
  uint16_t port = 0;
};
std::optional<HostPort> split_host_port(std::string_view text);

/// Strict: any value that is not accepted fails. An empty value counts as unset.
Result<Config> parse_config(const Environment& environment);
/// A sentence for each RAILYARD_ variable that is set but unknown, with the name probably meant.
std::vector<std::string> unknown_parameters(const Environment& environment);

/// All parameters, for a terminal.
std::string parameter_help();
/// The same as a table for the README.
std::string parameter_table();

}  // namespace railyard
