// SPDX-License-Identifier: Apache-2.0
#include "comm/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace railyard::comm {
namespace {

// The parts of NVML's interface used here; all results are 0 for success.
using Device = struct nvmlDevice_st*;
struct FabricInfo {
  std::array<unsigned char, 16> cluster;
  int status;
  unsigned clique;
  unsigned char state;
};
static_assert(sizeof(FabricInfo) == 28);
constexpr unsigned char kFabricCompleted = 3;
constexpr unsigned kMostLinks = 18;

/// dlopen'd once and kept; NVML itself is opened and closed around each question.
struct Library {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_pci)(const char*, Device*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*fabric)(Device, FabricInfo*) = nullptr;  ///< absent from older drivers

  Library() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    find(library, "nvmlInit_v2", init);
    find(library, "nvmlShutdown", shutdown);
    find(library, "nvmlDeviceGetHandleByPciBusId_v2", by_pci);
    find(library, "nvmlDeviceGetNvLinkState", link_state);
    find(library, "nvmlDeviceGetGpuFabricInfo", fabric);
  }
  bool usable() const { return init != nullptr && shutdown != nullptr && by_pci != nullptr; }

 private:
  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }
};

std::string fabric_of(const Library& nvml, Device device) {
  FabricInfo info{};
  if (nvml.fabric == nullptr || nvml.fabric(device, &info) != 0) return "";
  const bool member = info.state == kFabricCompleted && info.status == 0 &&
                      std::any_of(info.cluster.begin(), info.cluster.end(),
                                  [](unsigned char byte) { return byte != 0; });
  if (!member) return "";
  std::string text;
  char part[16];
  for (const unsigned char byte : info.cluster) {
    std::snprintf(part, sizeof part, "%02x", byte);
    text += part;
  }
  std::snprintf(part, sizeof part, ".%u", info.clique);
  return text + part;
}

bool any_link_up(const Library& nvml, Device device) {
  if (nvml.link_state == nullptr) return false;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned up = 0;
    if (nvml.link_state(device, link, &up) == 0 && up != 0) return true;
  }
  return false;
}

}  // namespace

NvmlFacts ask_nvml(const std::string& pci) {
  static const auto* const nvml = new Library;
  NvmlFacts facts;
  if (!nvml->usable() || nvml->init() != 0) return facts;
  Device device = nullptr;
  if (nvml->by_pci(pci.c_str(), &device) == 0) {
    facts.nvlink = any_link_up(*nvml, device);
    facts.fabric = fabric_of(*nvml, device);
  }
  nvml->shutdown();
  return facts;
}

}  // namespace railyard::comm
