// SPDX-License-Identifier: Apache-2.0
#include "pattern.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace alltoall {
namespace {

using testing::Each;
using testing::ElementsAre;

Matrix make(const std::string& text, int ranks, uint64_t size, uint64_t seed = 1) {
  return Pattern::parse(text)->bytes(ranks, size, 4, seed);
}

uint64_t sum(const std::vector<uint64_t>& row) {
  return std::accumulate(row.begin(), row.end(), uint64_t{0});
}

TEST(Pattern, OnlyWhatThereIsIsParsed) {
  for (const char* good :
       {"uniform", "random", "zipf:0", "zipf:1.5", "hot:3", "stride:4", "sparse:0.25"}) {
    EXPECT_TRUE(Pattern::parse(good)) << good;
  }
  for (const char* bad : {"", "even", "uniform:1", "zipf", "zipf:", "zipf:-1", "zipf:nan", "hot:0",
                          "stride:0", "hot:1.5", "hot:2x", "sparse:1.1", "sparse:", "random:2"}) {
    EXPECT_FALSE(Pattern::parse(bad)) << bad;
  }
}

TEST(Pattern, UniformIsEven) { EXPECT_THAT(make("uniform", 3, 100), Each(Each(32))); }

TEST(Pattern, HotGoesToTheFirst) {
  EXPECT_THAT(make("hot:1", 3, 96), Each(ElementsAre(96, 0, 0)));
  EXPECT_THAT(make("hot:2", 3, 96), Each(ElementsAre(48, 48, 0)));
  EXPECT_THAT(make("hot:9", 2, 96), Each(ElementsAre(48, 48)));
}

TEST(Pattern, StrideStaysAmongLikeNumbers) {
  const Matrix matrix = make("stride:2", 5, 120);
  EXPECT_THAT(matrix[0], ElementsAre(40, 0, 40, 0, 40));
  EXPECT_THAT(matrix[3], ElementsAre(0, 60, 0, 60, 0));
  EXPECT_THAT(make("stride:9", 2, 120)[1], ElementsAre(0, 120));
}

TEST(Pattern, ZipfIsByPopularity) {
  const Matrix matrix = make("zipf:1", 3, 1100, 7);
  std::vector<uint64_t> row = matrix[0];
  EXPECT_THAT(matrix, Each(row));
  std::sort(row.begin(), row.end());
  EXPECT_THAT(row, ElementsAre(200, 300, 600));
}

TEST(Pattern, DrawnOnesFollowTheSeedAndKeepToTheirBounds) {
  for (const char* text : {"random", "sparse:0.5"}) {
    EXPECT_EQ(make(text, 8, 8000, 3), make(text, 8, 8000, 3));
    EXPECT_NE(make(text, 8, 8000, 3), make(text, 8, 8000, 4));
  }
  const Matrix random = make("random", 8, 8000);
  uint64_t all = 0;
  for (const auto& row : random) {
    EXPECT_THAT(row, Each(testing::Le(2000)));
    all += sum(row);
  }
  EXPECT_NEAR(static_cast<double>(all) / 8 / 8000, 1, 0.2);
  for (const auto& row : make("sparse:0.5", 8, 8000)) {
    EXPECT_THAT(row, Each(testing::AnyOf(0, 1000)));
  }
  EXPECT_THAT(make("sparse:1", 2, 8), Each(Each(4)));
  EXPECT_THAT(make("sparse:0", 2, 8), Each(Each(0)));
}

TEST(Pattern, BusiestNode) {
  const Matrix bytes = {{1, 2, 4}, {8, 16, 32}, {64, 128, 256}};
  EXPECT_EQ(busiest_node_bytes(bytes, {0, 0, 0}), 0);
  EXPECT_EQ(busiest_node_bytes(bytes, {0, 0, 1}), 192);  // node 1 sends 64 + 128
  EXPECT_EQ(busiest_node_bytes(bytes, {0, 1, 2}), 192);
  EXPECT_EQ(busiest_node_bytes(make("hot:1", 4, 96), {0, 0, 1, 1}), 192);
}

}  // namespace
}  // namespace alltoall
