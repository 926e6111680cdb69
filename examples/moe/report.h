// SPDX-License-Identifier: Apache-2.0
// Rank 0's account of a run: a line per step on stdout, and all figures as JSON.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "options.h"
#include "trainer.h"

namespace moe {

class Report final {
 public:
  // Opens the JSON file, if one is named, so that a bad name shows before the work is done.
  Report(const Options& options, int ranks);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void add(const StepRecord& record);
  void finish(float validation_loss, const std::string& parameters_sha256);

 private:
  double tokens_per_second(double step_ms) const;
  void write_json(float validation_loss, const std::string& parameters_sha256);
  void write_config();

  const Options options_;
  const int ranks_;
  std::FILE* json_ = nullptr;
  std::vector<StepRecord> records_;
};

}  // namespace moe
