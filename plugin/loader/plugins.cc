// SPDX-License-Identifier: Apache-2.0
//
// What NCCL finds when it loads railyard as its tuner or its environment plugin. Both exist to get
// railyard into the process: the tuner leaves every choice to NCCL or to the tuner named in
// RAILYARD_NEXT_TUNER, the environment plugin looks variables up as NCCL does.
#include <cstdlib>

#include "intercept/strangers.h"
#include "loader/next_tuner.h"
#include "loader/start.h"

#define RY_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#define RY_CALLER __builtin_extract_return_addr(__builtin_return_address(0))

namespace railyard::loader {
namespace {

template <int kVersion>
ncclResult_t begin(const TunerStart& start, void** context, const void* nccl) {
  start_from(nccl);
  if (context != nullptr) *context = nullptr;
  const NextTuner* const next = NextTuner::get(kVersion);
  return next == nullptr ? ncclSuccess : next->init(start, context);
}

template <int kVersion>
ncclResult_t init(size_t ranks, size_t nodes, tuner::Logger logger, void** context) {
  return begin<kVersion>({ranks, nodes, logger}, context, RY_CALLER);
}

template <int kVersion>
ncclResult_t init_with_hash(void** context, uint64_t hash, size_t ranks, size_t nodes,
                            tuner::Logger logger, tuner::DomainInfo* domains,
                            tuner::Constants* constants) {
  intercept::note_hash(hash, static_cast<int>(ranks));
  return begin<kVersion>({ranks, nodes, logger, hash, domains, constants}, context, RY_CALLER);
}

ncclResult_t get_info_v2(void* context, tuner::Collective collective, size_t bytes, int collnet,
                         int nvls, int pipelined, int* algorithm, int* protocol, int* channels) {
  const NextTuner* const next = NextTuner::get(2);
  if (next == nullptr) return ncclSuccess;
  return next->get_info_v2(context, collective, bytes, collnet, nvls, pipelined, algorithm,
                           protocol, channels);
}

ncclResult_t get_info_v3(void* context, tuner::Collective collective, size_t bytes, int pipelined,
                         tuner::CostTable costs, int algorithms, int protocols, int* channels) {
  const NextTuner* const next = NextTuner::get(3);
  if (next == nullptr) return ncclSuccess;
  return next->get_info(context,
                        {collective, bytes, pipelined, costs, algorithms, protocols, 0, channels});
}

template <int kVersion>
ncclResult_t get_info(void* context, tuner::Collective collective, size_t bytes, int pipelined,
                      tuner::CostTable costs, int algorithms, int protocols, int registered,
                      int* channels) {
  const NextTuner* const next = NextTuner::get(kVersion);
  if (next == nullptr) return ncclSuccess;
  return next->get_info(
      context, {collective, bytes, pipelined, costs, algorithms, protocols, registered, channels});
}

/// Called where a tuner without this function would not be, so it changes nothing.
ncclResult_t get_chunk_size(void* context, tuner::Collective collective, size_t bytes,
                            int algorithm, int protocol, int channels, size_t* chunk) {
  const NextTuner* const next = NextTuner::get(6);
  if (next == nullptr) return ncclSuccess;
  return next->get_chunk_size(context, collective, bytes, algorithm, protocol, channels, chunk);
}

template <int kVersion>
ncclResult_t finish(void* context) {
  const NextTuner* const next = NextTuner::get(kVersion);
  return next == nullptr ? ncclSuccess : next->finish(context);
}

/// Of the environment plugin's interface; version 2 gives init one argument more.
struct EnvironmentPlugin {
  const char* name;
  ncclResult_t (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix);
  ncclResult_t (*finalize)();
  const char* (*get)(const char* name);
};
static_assert(sizeof(EnvironmentPlugin) == 32 && offsetof(EnvironmentPlugin, get) == 24);

ncclResult_t init_environment(uint8_t, uint8_t, uint8_t, const char*) {
  start_from(RY_CALLER);
  return ncclSuccess;
}
ncclResult_t finalize_environment() { return ncclSuccess; }
const char* get_variable(const char* name) { return std::getenv(name); }

constexpr const char* kName = "railyard";
constexpr EnvironmentPlugin kEnvironmentPlugin = {kName, init_environment, finalize_environment,
                                                  get_variable};

[[gnu::constructor]] void on_load() { start(); }

}  // namespace
}  // namespace railyard::loader

using namespace railyard::loader;

/// By which railyard finds out where it is, and whether it is there twice.
RY_PLUGIN_EXPORT const char railyard_instance[];
const char railyard_instance[] = "railyard";

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
RY_PLUGIN_EXPORT const tuner::V2 ncclTunerPlugin_v2;
RY_PLUGIN_EXPORT const tuner::V3 ncclTunerPlugin_v3;
RY_PLUGIN_EXPORT const tuner::V4 ncclTunerPlugin_v4;
RY_PLUGIN_EXPORT const tuner::V5 ncclTunerPlugin_v5;
RY_PLUGIN_EXPORT const tuner::V6 ncclTunerPlugin_v6;
RY_PLUGIN_EXPORT const EnvironmentPlugin ncclEnvPlugin_v1;
RY_PLUGIN_EXPORT const EnvironmentPlugin ncclEnvPlugin_v2;

const tuner::V2 ncclTunerPlugin_v2 = {kName, init<2>, get_info_v2, finish<2>};
const tuner::V3 ncclTunerPlugin_v3 = {kName, init<3>, get_info_v3, finish<3>};
const tuner::V4 ncclTunerPlugin_v4 = {kName, init<4>, get_info<4>, finish<4>};
const tuner::V5 ncclTunerPlugin_v5 = {kName, init_with_hash<5>, get_info<5>, finish<5>};
const tuner::V6 ncclTunerPlugin_v6 = {{kName, init_with_hash<6>, get_info<6>, finish<6>},
                                      get_chunk_size};
const EnvironmentPlugin ncclEnvPlugin_v1 = kEnvironmentPlugin;
const EnvironmentPlugin ncclEnvPlugin_v2 = kEnvironmentPlugin;
// NOLINTEND(readability-identifier-naming)
