// SPDX-License-Identifier: Apache-2.0
// How the trainer fails: one exception type that carries the exit status, thrown where the trouble
// is found and caught once, in main. Nothing else in the program ends the process.
#pragma once

#include <stdexcept>
#include <string>

namespace moe {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;  // bad arguments, missing data, a job that cannot fit

class Error final : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// Something the user can mend before starting again; the message says how.
[[noreturn]] inline void fail_usage(const std::string& message) {
  throw Error(kExitUsage, message);
}

// Something that broke while running.
[[noreturn]] inline void fail(const std::string& message) { throw Error(kExitFailure, message); }

}  // namespace moe
