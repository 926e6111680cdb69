// SPDX-License-Identifier: Apache-2.0
// The text and the sequences drawn from it. Which sequences a step sees depends on the seed, the
// step and the sequence's number in the whole job, not on how many ranks share them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute.h"

namespace moe {

// The bytes of all files, one after the other. Throws a usage error for what cannot be read.
std::vector<std::uint8_t> read_text(const std::vector<std::string>& files);

enum class Split { kTrain, kValidation };

class TextSampler final {
 public:
  // The last tenth of the text is for validation. Throws a usage error where a part is too short
  // for one sequence of `length` tokens and the byte after it.
  TextSampler(std::vector<std::uint8_t> text, Index length, std::uint64_t seed);

  // Fills [count][length] tokens and the bytes that follow each, for the sequences with numbers
  // first .. first + count - 1 of the step.
  void draw(Split split, int step, Index first, Index count, std::int32_t* tokens,
            std::int32_t* targets) const;

 private:
  std::vector<std::uint8_t> text_;
  Index length_;
  Index train_bytes_;
  std::uint64_t seed_;
};

}  // namespace moe
