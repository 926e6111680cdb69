// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

namespace railyard::emulator {
namespace {

bool parse(std::string_view text, int* value) {
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc{} && stop == end;
}

int number(const char* name, int preset, int low, int high) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return preset;
  int value = 0;
  if (parse(text, &value) && value >= low && value <= high) return value;
  std::fprintf(stderr, "emulated CUDA: %s=%s is no number from %d to %d, using %d\n", name, text,
               low, high, preset);
  return preset;
}

/// As CUDA reads its list: numbers up to the first that names no device.
std::vector<int> visible(int count) {
  std::vector<int> devices;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < count; ++i) devices.push_back(i);
    return devices;
  }
  std::string_view rest(text);
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    int device = -1;
    if (!parse(rest.substr(0, comma), &device) || device < 0 || device >= count) break;
    devices.push_back(device);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return devices;
}

std::string host_identity() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return id;
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(name) + " " + boot;
}

}  // namespace

const Settings& settings() {
  static const Settings* const kSettings = new Settings{
      visible(number("EMULATOR_GPUS", 8, 0, 64)),
      number("EMULATOR_MULTIPROCESSORS", 1, 1, 1024),
      number("EMULATOR_BLOCK_THREADS", 1, 1, 1024),
      host_identity(),
  };
  return *kSettings;
}

}  // namespace railyard::emulator
