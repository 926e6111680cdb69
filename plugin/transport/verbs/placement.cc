// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/placement.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <utility>

namespace railyard::verbs {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  size_t from = 0;
  while (from < path.size()) {
    const size_t slash = std::min(path.find('/', from), path.size());
    parts.push_back(path.substr(from, slash - from));
    from = slash + 1;
  }
  return parts;
}

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// The distance, and for devices behind common switches how many bridges are between.
std::pair<Distance, size_t> reach(const PciPlace& a, const PciPlace& b) {
  const auto x = split(a.path), y = split(b.path);
  if (x.empty() || y.empty() || x[0].rfind("pci", 0) != 0 || y[0].rfind("pci", 0) != 0)
    return {Distance::kSystem, 0};
  if (a.path == b.path) return {Distance::kLocal, 0};
  size_t common = 0;
  while (common < x.size() && common < y.size() && x[common] == y[common]) ++common;
  // Below the root, what is common is a switch.
  if (common >= 2) {
    const size_t longest = std::max(x.size(), y.size()) - common;
    return {longest <= 2 ? Distance::kSwitch : Distance::kSwitches, longest};
  }
  const bool same_socket = common == 1 || (a.numa >= 0 && a.numa == b.numa);
  return {same_socket ? Distance::kHostBridge : Distance::kSystem, 0};
}

std::vector<int> nearest(std::span<const PciPlace> nics, const PciPlace& gpu) {
  std::vector<int> found;
  std::pair<Distance, size_t> best;
  for (size_t i = 0; i < nics.size(); ++i) {
    const auto here = reach(nics[i], gpu);
    if (!found.empty() && here > best) continue;
    if (found.empty() || here < best) found.clear();
    best = here;
    found.push_back(static_cast<int>(i));
  }
  return found;
}

}  // namespace

std::string PciPlace::bus_id() const {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

Distance distance_between(const PciPlace& a, const PciPlace& b) { return reach(a, b).first; }

std::vector<int> choose_nics(std::span<const PciPlace> nics, const GpuPlaces& gpus) {
  if (nics.empty()) return {};
  std::vector<int> group(nics.size());
  for (size_t i = 0; i < group.size(); ++i) group[i] = static_cast<int>(i);
  size_t sharers = static_cast<size_t>(std::max(gpus.count, 1));
  size_t position = static_cast<size_t>(std::max(gpus.index, 0)) % sharers;
  if (gpus.self >= 0) {
    const auto self = static_cast<size_t>(gpus.self);
    group = nearest(nics, gpus.gpus[self]);
    sharers = position = 0;
    for (size_t g = 0; g < gpus.gpus.size(); ++g) {
      if (nearest(nics, gpus.gpus[g]) != group) continue;
      if (g == self) position = sharers;
      ++sharers;
    }
  }
  if (sharers >= group.size()) return {group[position % group.size()]};
  std::vector<int> chosen;
  for (size_t i = position; i < group.size(); i += sharers) chosen.push_back(group[i]);
  return chosen;
}

PciPlace read_place(const std::string& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  PciPlace place;
  if (error) return place;
  // What is above the PCI root ("/sys/devices") says nothing; a device that is not on PCI keeps
  // only its name.
  bool below_root = false;
  for (const fs::path& part : real) {
    below_root = below_root || part.string().rfind("pci", 0) == 0;
    if (!below_root) continue;
    if (!place.path.empty()) place.path += '/';
    place.path += part.string();
  }
  if (place.path.empty()) place.path = real.filename().string();
  const std::string numa = first_line(real / "numa_node");
  if (!numa.empty()) place.numa = std::atoi(numa.c_str());
  return place;
}

GpuPlaces read_gpus(const Options& options) {
  GpuPlaces places;
  places.index = options.gpu_index;
  places.count = options.gpu_count;
  std::string wanted = options.gpu_pci;
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::error_code error;
  std::vector<std::string> ids;
  for (const auto& entry : fs::directory_iterator(options.sysfs + "/bus/pci/devices", error)) {
    // Display controllers made by NVIDIA.
    if (first_line(entry.path() / "vendor") != "0x10de") continue;
    if (first_line(entry.path() / "class").rfind("0x03", 0) != 0) continue;
    ids.push_back(entry.path().filename().string());
  }
  std::sort(ids.begin(), ids.end());
  for (const std::string& id : ids) {
    if (id == wanted) places.self = static_cast<int>(places.gpus.size());
    places.gpus.push_back(read_place(options.sysfs + "/bus/pci/devices/" + id));
  }
  return places;
}

}  // namespace railyard::verbs
