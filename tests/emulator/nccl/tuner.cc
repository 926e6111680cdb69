// SPDX-License-Identifier: Apache-2.0
#include "tuner.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>

#include "environment.h"
#include "reduce.h"
#include "result.h"
#include "version.h"

namespace railyard::emulator {
namespace {

std::optional<plugin::Function> function_of(Task::Kind kind) {
  switch (kind) {
    case Task::Kind::kBroadcast:
      return plugin::kBroadcast;
    case Task::Kind::kReduce:
      return plugin::kReduce;
    case Task::Kind::kAllGather:
      return plugin::kAllGather;
    case Task::Kind::kReduceScatter:
      return plugin::kReduceScatter;
    case Task::Kind::kAllReduce:
      return plugin::kAllReduce;
    case Task::Kind::kSend:
    case Task::Kind::kReceive:
      break;
  }
  return std::nullopt;
}

}  // namespace

void plugin::log(int level, unsigned long, const char* file, int line, const char* format, ...) {
  constexpr int kWarn = 2;
  if (level > kWarn) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  ::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fail(ncclSuccess, "%s:%d %s", file, line, text);
}

/// In NCCL 2.19 and 2.20 there were no names of plugins but paths, and one version.
Tuner::Plugin Tuner::find_first() {
  const char* path = ::getenv("NCCL_TUNER_PLUGIN");
  void* const library = path != nullptr ? ::dlopen(path, RTLD_LAZY | RTLD_LOCAL) : nullptr;
  void* const v1 = library != nullptr ? ::dlsym(library, "ncclTunerPlugin_v1") : nullptr;
  if (v1 == nullptr) return {};
  return static_cast<const plugin::TunerV1*>(v1);
}

/// The newest version that both know. The sixth is the fifth with one function more, which is
/// never called here.
Tuner::Plugin Tuner::find() {
  const int version = nccl_version();
  if (version < 21901) return {};
  if (version < 22105) return find_first();
  const char* value = variable("NCCL_TUNER_PLUGIN");
  void* library = open_plugin("nccl-tuner", value, version >= 22203);
  // A plugin for the network may have a tuner in it.
  if (library == nullptr && !switched_off(value)) {
    library = open_plugin("nccl-net", variable("NCCL_NET_PLUGIN"), false);
  }
  if (library == nullptr) return {};
  const auto symbol = [library](const char* name) { return ::dlsym(library, name); };
  if (void* v6 = version >= 23003 ? symbol("ncclTunerPlugin_v6") : nullptr) {
    return static_cast<const plugin::TunerV5*>(v6);
  }
  if (void* v5 = version >= 22803 ? symbol("ncclTunerPlugin_v5") : nullptr) {
    return static_cast<const plugin::TunerV5*>(v5);
  }
  if (void* v4 = version >= 22403 ? symbol("ncclTunerPlugin_v4") : nullptr) {
    return static_cast<const plugin::TunerV4*>(v4);
  }
  if (void* v3 = version >= 22203 ? symbol("ncclTunerPlugin_v3") : nullptr) {
    return static_cast<const plugin::TunerV3*>(v3);
  }
  if (void* v2 = symbol("ncclTunerPlugin_v2")) return static_cast<const plugin::TunerV2*>(v2);
  return {};
}

Tuner::Plugin Tuner::load() {
  static const Plugin plugin = find();
  return plugin;
}

ncclResult_t Tuner::open(uint64_t communicator, const std::vector<Record>& table) {
  std::map<uint64_t, int> ranks_on;
  for (const Record& record : table) ++ranks_on[record.host];
  const auto [least, most] = std::minmax_element(
      ranks_on.begin(), ranks_on.end(), [](auto& a, auto& b) { return a.second < b.second; });
  plugin::NvlDomains domains{static_cast<int>(ranks_on.size()), least->second, most->second};
  plugin::Constants constants{};
  ranks_ = table.size();
  const size_t nodes = ranks_on.size();
  plugin_ = load();
  const ncclResult_t result = std::visit(
      [&](auto tuner) -> ncclResult_t {
        using T = decltype(tuner);
        if constexpr (std::is_same_v<T, std::monostate>) {
          return ncclSuccess;
        } else if constexpr (std::is_same_v<T, const plugin::TunerV5*>) {
          return tuner->init(&context_, communicator, ranks_, nodes, plugin::log, &domains,
                             &constants);
        } else if constexpr (std::is_same_v<T, const plugin::TunerV1*>) {
          return tuner->init(ranks_, nodes, plugin::log);
        } else {
          return tuner->init(ranks_, nodes, plugin::log, &context_);
        }
      },
      plugin_);
  if (result != ncclSuccess) plugin_ = {};  // what never began has no end
  return result;
}

ncclResult_t Tuner::ask(const Task& task) const {
  const auto function = function_of(task.kind);
  if (!function || ranks_ < 2) return ncclSuccess;
  const size_t bytes = task.count * type_size(task.type);
  float costs[plugin::kAlgorithms][plugin::kProtocols];
  std::fill_n(&costs[0][0], plugin::kAlgorithms * plugin::kProtocols, 10.0F);
  auto* const table = reinterpret_cast<float**>(costs);
  int channels = 0, algorithm = -1, protocol = -1;
  return std::visit(
      [&](auto tuner) -> ncclResult_t {
        using T = decltype(tuner);
        if constexpr (std::is_same_v<T, std::monostate>) {
          return ncclSuccess;
        } else if constexpr (std::is_same_v<T, const plugin::TunerV1*>) {
          return tuner->getCollInfo(*function, bytes, 0, 0, 1, &algorithm, &protocol, &channels);
        } else if constexpr (std::is_same_v<T, const plugin::TunerV2*>) {
          return tuner->getCollInfo(context_, *function, bytes, 0, 0, 1, &algorithm, &protocol,
                                    &channels);
        } else if constexpr (std::is_same_v<T, const plugin::TunerV3*>) {
          return tuner->getCollInfo(context_, *function, bytes, 1, table, plugin::kAlgorithms,
                                    plugin::kProtocols, &channels);
        } else {
          return tuner->getCollInfo(context_, *function, bytes, 1, table, plugin::kAlgorithms,
                                    plugin::kProtocols, 0, &channels);
        }
      },
      plugin_);
}

void Tuner::close() {
  std::visit(
      [this](auto tuner) {
        using T = decltype(tuner);
        if constexpr (std::is_same_v<T, const plugin::TunerV5*>) {
          tuner->finalize(context_);
        } else if constexpr (std::is_same_v<T, const plugin::TunerV1*>) {
          tuner->destroy();
        } else if constexpr (!std::is_same_v<T, std::monostate>) {
          tuner->destroy(context_);
        }
      },
      plugin_);
  plugin_ = {};
}

}  // namespace railyard::emulator
