// SPDX-License-Identifier: Apache-2.0
// Drawing of sequences, SHA-256, and refusal of unusable text.
#include "data.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "error.h"
#include "sha256.h"

namespace moe {
namespace {

// Byte i is i modulo 250, so that a token tells its place.
std::vector<std::uint8_t> counting_text(std::size_t size) {
  std::vector<std::uint8_t> text(size);
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<std::uint8_t>(i % 250);
  return text;
}

struct Drawn {
  std::vector<std::int32_t> tokens, targets;
  bool operator==(const Drawn&) const = default;
};

Drawn draw(const TextSampler& text, Split split, int step, Index first, Index count, Index length) {
  Drawn drawn;
  drawn.tokens.resize(static_cast<std::size_t>(count * length));
  drawn.targets.resize(drawn.tokens.size());
  text.draw(split, step, first, count, drawn.tokens.data(), drawn.targets.data());
  return drawn;
}

TEST(TextSampler, TargetsFollowTokensAndSplitsDoNotMix) {
  const Index length = 5;
  const TextSampler text(counting_text(200), length, 1);
  for (int step = 0; step < 200; ++step) {
    for (const Split split : {Split::kTrain, Split::kValidation}) {
      const Drawn d = draw(text, split, step, 0, 1, length);
      for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(d.targets[i], d.tokens[i] + 1);
      if (split == Split::kTrain) {
        EXPECT_LT(d.targets.back(), 180);
      } else {
        EXPECT_GE(d.tokens.front(), 180);
        EXPECT_LT(d.targets.back(), 200);
      }
    }
  }
}

TEST(TextSampler, DependsOnSeedStepAndNumberOnly) {
  const TextSampler text(counting_text(5000), 16, 1);
  const Drawn whole = draw(text, Split::kTrain, 3, 0, 4, 16);
  const Drawn half = draw(text, Split::kTrain, 3, 2, 2, 16);
  EXPECT_TRUE(std::equal(half.tokens.begin(), half.tokens.end(), whole.tokens.begin() + 32));
  EXPECT_EQ(whole, draw(TextSampler(counting_text(5000), 16, 1), Split::kTrain, 3, 0, 4, 16));
  EXPECT_NE(whole, draw(text, Split::kTrain, 4, 0, 4, 16));
  EXPECT_NE(whole, draw(TextSampler(counting_text(5000), 16, 2), Split::kTrain, 3, 0, 4, 16));
}

TEST(TextSampler, RefusesShortText) {
  EXPECT_NO_THROW(TextSampler(counting_text(60), 5, 1));
  for (const std::size_t size : {0U, 1U, 50U}) {
    try {
      const TextSampler text(counting_text(size), 5, 1);
      ADD_FAILURE() << size << " bytes taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), kExitUsage);
      EXPECT_NE(std::string(error.what()).find("--data"), std::string::npos);
    }
  }
}

TEST(ReadText, RefusesWhatItCannotRead) {
  for (const char* name : {"/nowhere/at/all", "/"}) {
    try {
      read_text({name});
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), kExitUsage);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
    }
  }
}

std::string sha256(const std::string& text, std::size_t piece) {
  Sha256 hash;
  for (std::size_t i = 0; i < text.size(); i += piece) {
    hash.update(text.data() + i, std::min(piece, text.size() - i));
  }
  return Sha256::hex(hash.finish());
}

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 7),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a'), 1000),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace moe
