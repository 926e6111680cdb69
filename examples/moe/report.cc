// SPDX-License-Identifier: Apache-2.0
// Prints progress and writes the JSON file.
#include "report.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"

namespace moe {
namespace {

double median_of(const std::vector<StepRecord>& records, double StepRecord::*field) {
  std::vector<double> values;
  for (const StepRecord& record : records) values.push_back(record.*field);
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned char>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

Report::Report(const Options& options, int ranks) : options_(options), ranks_(ranks) {
  if (options.json.empty()) return;
  json_ = std::fopen(options.json.c_str(), "w");
  if (json_ == nullptr) {
    fail_usage("cannot write " + options.json + ": " + std::strerror(errno) +
               "; give --json a file in a folder that exists");
  }
}

Report::~Report() {
  if (json_ != nullptr) std::fclose(json_);
}

void Report::add(const StepRecord& record) {
  records_.push_back(record);
  std::printf("step %5d  loss %.4f  balance %.3f  %8.0f tokens/s  all-to-all %7.1f ms of %7.1f\n",
              record.step, static_cast<double>(record.loss), static_cast<double>(record.balance),
              tokens_per_second(record.step_ms), record.exchange_ms, record.step_ms);
  std::fflush(stdout);
}

void Report::finish(float validation_loss, const std::string& parameters_sha256) {
  std::printf("validation loss %.4f\nparameters sha256 %s\n", static_cast<double>(validation_loss),
              parameters_sha256.c_str());
  std::fflush(stdout);
  if (json_ == nullptr) return;
  write_json(validation_loss, parameters_sha256);
  std::FILE* file = std::exchange(json_, nullptr);
  const bool whole = std::ferror(file) == 0;
  if (std::fclose(file) != 0 || !whole) {
    fail("cannot write all of " + options_.json + ": is the disk full?");
  }
}

double Report::tokens_per_second(double step_ms) const {
  return static_cast<double>(options_.model.rows() * ranks_) * 1e3 / step_ms;
}

void Report::write_json(float validation_loss, const std::string& parameters_sha256) {
  const double step_ms = median_of(records_, &StepRecord::step_ms);
  std::fprintf(json_, "{\n");
  write_config();
  std::fprintf(json_, "  \"steps\": [\n");
  for (const StepRecord& r : records_) {
    std::fprintf(json_,
                 "    {\"step\": %d, \"loss\": %.9g, \"balance\": %.9g, \"step_ms\": %.3f, "
                 "\"alltoall_ms\": %.3f}%s\n",
                 r.step, static_cast<double>(r.loss), static_cast<double>(r.balance), r.step_ms,
                 r.exchange_ms, &r == &records_.back() ? "" : ",");
  }
  std::fprintf(json_,
               "  ],\n  \"final_loss\": %.9g,\n  \"validation_loss\": %.9g,\n"
               "  \"parameters_sha256\": \"%s\",\n  \"step_ms_median\": %.3f,\n"
               "  \"alltoall_ms_median\": %.3f,\n  \"tokens_per_s\": %.1f\n}\n",
               static_cast<double>(records_.back().loss), static_cast<double>(validation_loss),
               parameters_sha256.c_str(), step_ms, median_of(records_, &StepRecord::exchange_ms),
               tokens_per_second(step_ms));
}

void Report::write_config() {
  const ModelConfig& m = options_.model;
  std::string files;
  for (const std::string& name : options_.data) {
    files += (files.empty() ? "" : ", ") + quoted(name);
  }
  std::fprintf(json_,
               "  \"config\": {\"ranks\": %d, \"experts\": %td, \"layers\": %td, \"width\": %td, "
               "\"hidden\": %td, \"heads\": %td, \"sequence\": %td, \"batch\": %td, "
               "\"balance\": %.9g, \"learning_rate\": %.9g, \"seed\": %llu, \"data\": [%s]},\n",
               ranks_, m.experts, m.layers, m.width, m.hidden, m.heads, m.length, m.batch,
               static_cast<double>(m.balance_weight), static_cast<double>(options_.learning_rate),
               static_cast<unsigned long long>(m.seed), files.c_str());
}

}  // namespace moe
