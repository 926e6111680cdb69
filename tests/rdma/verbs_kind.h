// SPDX-License-Identifier: Apache-2.0
//
// Transports for tests inside the soft-RoCE machine. RXE_DEVICES names its devices; those who make
// one transport after another get the devices in turn.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "transport/verbs/verbs_transport.h"

namespace railyard::verbs {

inline std::vector<std::string> rxe_devices() {
  const char* names = std::getenv("RXE_DEVICES");
  std::istringstream words(names != nullptr ? names : "");
  std::vector<std::string> devices;
  for (std::string word; words >> word;) devices.push_back(word);
  return devices;
}

/// Of `device` alone. Retries end within a second: on soft-RoCE seven would mean "for ever".
inline Options options_for(const std::string& device) {
  Options options = options_from([](const char* name) { return std::getenv(name); });
  options.hca = "=" + device;
  options.bootstrap = *net::SocketAddress::parse("127.0.0.1", 0);
  options.timeout = 14;
  options.retry_count = 6;
  return options;
}

inline std::unique_ptr<transport::Transport> make_one(const Options& options) {
  Result<std::unique_ptr<transport::Transport>> made = transport::make_verbs(options);
  if (!made.ok()) {
    ADD_FAILURE() << made.status().message();
    std::exit(1);
  }
  return made.take();
}

inline std::unique_ptr<transport::Transport> make_next(const Options& changes = {}) {
  static std::atomic<size_t> next{0};
  const std::vector<std::string> devices = rxe_devices();
  Options options = options_for(devices.at(next++ % devices.size()));
  options.force_flush = changes.force_flush;
  options.queue_pairs = changes.queue_pairs;
  return make_one(options);
}

}  // namespace railyard::verbs
