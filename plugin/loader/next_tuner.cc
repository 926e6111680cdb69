// SPDX-License-Identifier: Apache-2.0
#include "loader/next_tuner.h"

#include <dlfcn.h>

#include <array>
#include <string>

#include "base/config.h"
#include "base/log.h"
#include "loader/own.h"

namespace railyard::loader {
namespace {

using tuner::CostTable;

void* open_tuner(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const std::string why = dlerror();
  const bool is_file =
      name.find('/') != std::string::npos || (name.starts_with("lib") && name.ends_with(".so"));
  if (!is_file) handle = dlopen(("libnccl-tuner-" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    log::warn("the tuner %s cannot be loaded: %s; NCCL's own choices hold (RAILYARD_NEXT_TUNER)",
              name.c_str(), why.c_str());
  }
  return handle;
}

struct Symbols {
  const void* of[NextTuner::kNewest + 1] = {};
};

/// Of the named tuner; all null if there is none.
const Symbols& next_symbols() {
  static const Symbols symbols = [] {
    Symbols found;
    const auto config = parse_config(process_environment());
    if (!config.ok() || config->next_tuner.empty()) return found;
    void* const handle = open_tuner(config->next_tuner);
    if (handle == nullptr) return found;
    bool any = false;
    for (int version = NextTuner::kOldest; version <= NextTuner::kNewest; ++version) {
      const void* symbol = dlsym(handle, ("ncclTunerPlugin_v" + std::to_string(version)).c_str());
      if (is_own_code(symbol)) symbol = nullptr;  // it names railyard itself
      found.of[version] = symbol;
      any = any || symbol != nullptr;
    }
    if (any) {
      log::info("forwarding to the tuner %s", config->next_tuner.c_str());
    } else {
      log::warn(
          "%s is no tuner for NCCL 2.21 or later; NCCL's own choices hold "
          "(RAILYARD_NEXT_TUNER)",
          config->next_tuner.c_str());
    }
    return found;
  }();
  return symbols;
}

float* cost_of(const TunerQuestion& question, int algorithm, int protocol) {
  if (algorithm < 0 || algorithm >= question.algorithms) return nullptr;
  if (protocol < 0 || protocol >= question.protocols) return nullptr;
  return reinterpret_cast<float*>(question.costs) + algorithm * question.protocols + protocol;
}

bool usable(const TunerQuestion& question, int algorithm) {
  const float* const cost = cost_of(question, algorithm, tuner::kProtocolSimple);
  return cost != nullptr && *cost != tuner::kIgnore;
}

}  // namespace

std::optional<NextTuner> NextTuner::choose(const void* const (&symbols)[kNewest + 1], int version) {
  if (symbols[version] != nullptr) return NextTuner(version, symbols[version]);
  // From version 5 on NCCL tells all there is; version 3 and 4 can answer each other and ask 2.
  const int newest = version >= 5 ? kNewest : version >= 3 ? 4 : 2;
  for (int other = newest; other >= kOldest; --other) {
    if (symbols[other] != nullptr) return NextTuner(other, symbols[other]);
  }
  return std::nullopt;
}

const NextTuner* NextTuner::get(int version) {
  static const auto chosen = [] {
    std::array<std::optional<NextTuner>, kNewest + 1> all;
    for (int i = kOldest; i <= kNewest; ++i) {
      all[static_cast<size_t>(i)] = choose(next_symbols().of, i);
    }
    return all;
  }();
  const auto& one = chosen[static_cast<size_t>(version)];
  return one ? &*one : nullptr;
}

ncclResult_t NextTuner::init(const TunerStart& start, void** context) const {
  if (version_ >= 5) {
    return as<tuner::V5>().init(context, start.hash, start.ranks, start.nodes, start.logger,
                                start.domains, start.constants);
  }
  return as<tuner::V4>().init(start.ranks, start.nodes, start.logger, context);
}

ncclResult_t NextTuner::get_info(void* context, const TunerQuestion& question) const {
  if (version_ == 2) return get_info_by_costs(context, question);
  const TunerQuestion& q = question;
  if (version_ == 3) {
    return as<tuner::V3>().get_info(context, q.collective, q.bytes, q.pipelined, q.costs,
                                    q.algorithms, q.protocols, q.channels);
  }
  // Versions 4 to 6 have this function in the same place.
  return as<tuner::V4>().get_info(context, q.collective, q.bytes, q.pipelined, q.costs,
                                  q.algorithms, q.protocols, q.registered, q.channels);
}

ncclResult_t NextTuner::get_info_by_costs(void* context, const TunerQuestion& question) const {
  int algorithm = tuner::kUndecided, protocol = tuner::kUndecided;
  const ncclResult_t result =
      get_info_v2(context, question.collective, question.bytes,
                  usable(question, tuner::kAlgorithmCollnetDirect) ? 1 : 0,
                  usable(question, tuner::kAlgorithmNvls) ? 1 : 0, question.pipelined, &algorithm,
                  &protocol, question.channels);
  float* const cost = cost_of(question, algorithm, protocol);
  if (result == ncclSuccess && cost != nullptr && *cost != tuner::kIgnore) *cost = 0.0F;
  return result;
}

ncclResult_t NextTuner::get_info_v2(void* context, tuner::Collective collective, size_t bytes,
                                    int collnet, int nvls, int pipelined, int* algorithm,
                                    int* protocol, int* channels) const {
  return as<tuner::V2>().get_info(context, collective, bytes, collnet, nvls, pipelined, algorithm,
                                  protocol, channels);
}

ncclResult_t NextTuner::get_chunk_size(void* context, tuner::Collective collective, size_t bytes,
                                       int algorithm, int protocol, int channels,
                                       size_t* chunk) const {
  if (version_ < 6 || as<tuner::V6>().get_chunk_size == nullptr) return ncclSuccess;
  return as<tuner::V6>().get_chunk_size(context, collective, bytes, algorithm, protocol, channels,
                                        chunk);
}

ncclResult_t NextTuner::finish(void* context) const {
  return as<tuner::V5>().finalize(context);  // in the same place in all versions
}

}  // namespace railyard::loader
