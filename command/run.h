// SPDX-License-Identifier: Apache-2.0
//
// `railyard run`: a program with railyard switched on, and what it did afterwards.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace railyard::command {

struct RunOptions {
  std::string library;  ///< empty: found beside this command
  std::string transport, comms;
  std::string stats;  ///< empty: a file of our own, removed afterwards
  std::string json;   ///< empty: the summary goes to stderr as text
  bool quiet = false;
  std::vector<std::string> program;
};

/// Adds the subcommand, which fills `options`.
CLI::App* add_run(CLI::App& app, RunOptions* options);

/// The program's exit status (128 + signal if one killed it); 2 for wrong use, 127 if it cannot be
/// started. Signals that this process gets go to the program.
int run(const RunOptions& options);

}  // namespace railyard::command
