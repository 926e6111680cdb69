// SPDX-License-Identifier: Apache-2.0
// Reads text and draws sequences.
#include "data.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "error.h"
#include "random.h"

namespace moe {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

std::vector<std::uint8_t> read_text(const std::vector<std::string>& files) {
  std::vector<std::uint8_t> text;
  std::vector<std::uint8_t> piece(1 << 16);
  for (const std::string& name : files) {
    const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(name.c_str(), "rb"));
    std::size_t got = 0;
    while (file != nullptr && (got = std::fread(piece.data(), 1, piece.size(), file.get())) > 0) {
      text.insert(text.end(), piece.begin(), piece.begin() + static_cast<Index>(got));
    }
    if (file == nullptr || std::ferror(file.get()) != 0) {
      fail_usage("cannot read " + name + ": " + std::strerror(errno) +
                 "; give readable text files with --data");
    }
  }
  return text;
}

TextSampler::TextSampler(std::vector<std::uint8_t> text, Index length, std::uint64_t seed)
    : text_(std::move(text)),
      length_(length),
      train_bytes_(static_cast<Index>(text_.size() - text_.size() / 10)),
      seed_(seed) {
  const Index shortest = std::min(train_bytes_, static_cast<Index>(text_.size()) - train_bytes_);
  if (shortest <= length) {
    fail_usage("the text has " + std::to_string(text_.size()) + " bytes, of which a tenth is for " +
               "validation: that is too little for sequences of " + std::to_string(length) +
               " bytes; give more text with --data, or a smaller --sequence");
  }
}

void TextSampler::draw(Split split, int step, Index first, Index count, std::int32_t* tokens,
                       std::int32_t* targets) const {
  const bool train = split == Split::kTrain;
  const Index begin = train ? 0 : train_bytes_;
  const Index end = train ? train_bytes_ : static_cast<Index>(text_.size());
  for (Index i = 0; i < count; ++i) {
    Random random(seed_, (train ? "train " : "validation ") + std::to_string(step) + " " +
                             std::to_string(first + i));
    const Index start =
        begin + static_cast<Index>(random.below(static_cast<std::uint64_t>(end - begin - length_)));
    const std::uint8_t* bytes = text_.data() + start;
    std::copy_n(bytes, length_, tokens + i * length_);
    std::copy_n(bytes + 1, length_, targets + i * length_);
  }
}

}  // namespace moe
