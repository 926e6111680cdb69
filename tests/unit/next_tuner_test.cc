// SPDX-License-Identifier: Apache-2.0
#include "loader/next_tuner.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace railyard::loader {
namespace {

using testing::ElementsAre;

/// What the fake tuners were told, in order.
std::vector<std::string>& told() {
  static std::vector<std::string> words;
  return words;
}

void tell(const std::string& what) { told().push_back(what); }

ncclResult_t old_init(size_t ranks, size_t nodes, tuner::Logger, void** context) {
  tell("init " + std::to_string(ranks) + " " + std::to_string(nodes));
  *context = &told();
  return ncclSuccess;
}
ncclResult_t new_init(void** context, uint64_t hash, size_t ranks, size_t nodes, tuner::Logger,
                      tuner::DomainInfo* domains, tuner::Constants*) {
  tell("init " + std::to_string(hash) + " " + std::to_string(ranks) + " " + std::to_string(nodes) +
       " " + std::to_string(domains->most_ranks));
  *context = &told();
  return ncclSuccess;
}
ncclResult_t finish(void* context) {
  tell(context == &told() ? "finish" : "finish with a wrong context");
  return ncclSuccess;
}
ncclResult_t info_v2(void*, tuner::Collective, size_t bytes, int collnet, int nvls, int pipelined,
                     int* algorithm, int* protocol, int* channels) {
  tell("v2 " + std::to_string(bytes) + " " + std::to_string(collnet) + " " + std::to_string(nvls) +
       " " + std::to_string(pipelined));
  *algorithm = 1;
  *protocol = 2;
  *channels = 7;
  return ncclSuccess;
}
ncclResult_t info_v3(void*, tuner::Collective, size_t bytes, int pipelined, tuner::CostTable,
                     int algorithms, int protocols, int* channels) {
  tell("v3 " + std::to_string(bytes) + " " + std::to_string(pipelined) + " " +
       std::to_string(algorithms) + " " + std::to_string(protocols));
  *channels = 3;
  return ncclSuccess;
}
ncclResult_t info_v4(void*, tuner::Collective, size_t bytes, int pipelined, tuner::CostTable,
                     int algorithms, int protocols, int registered, int* channels) {
  tell("v4 " + std::to_string(bytes) + " " + std::to_string(pipelined) + " " +
       std::to_string(algorithms) + " " + std::to_string(protocols) + " " +
       std::to_string(registered));
  *channels = 4;
  return ncclSystemError;
}
ncclResult_t chunk(void*, tuner::Collective, size_t bytes, int, int, int, size_t* size) {
  tell("chunk");
  *size = bytes / 2;
  return ncclSuccess;
}

constexpr tuner::V2 kV2 = {"two", old_init, info_v2, finish};
constexpr tuner::V3 kV3 = {"three", old_init, info_v3, finish};
constexpr tuner::V4 kV4 = {"four", old_init, info_v4, finish};
constexpr tuner::V5 kV5 = {"five", new_init, info_v4, finish};
constexpr tuner::V6 kV6 = {{"six", new_init, info_v4, finish}, chunk};

class NextTunerTest : public testing::Test {
 protected:
  NextTunerTest() { told().clear(); }

  TunerQuestion question() {
    return {tuner::Collective{4},
            1000,
            1,
            reinterpret_cast<tuner::CostTable>(costs_),
            7,
            3,
            1,
            &channels_};
  }

  float costs_[7][3] = {};
  int channels_ = 0;
  void* context_ = nullptr;
  tuner::DomainInfo domains_ = {2, 3, 5};
};

TEST_F(NextTunerTest, PrefersTheVersionThatNcclSpeaks) {
  const void* const all[] = {nullptr, nullptr, &kV2, &kV3, &kV4, &kV5, &kV6};
  for (int version = 2; version <= 6; ++version) {
    EXPECT_EQ(NextTuner::choose(all, version)->version(), version);
  }
}

TEST_F(NextTunerTest, ElseTheNewestThatNeedsNoMoreThanNcclTells) {
  const void* const new_ones[] = {nullptr, nullptr, nullptr, nullptr, nullptr, &kV5, &kV6};
  EXPECT_FALSE(NextTuner::choose(new_ones, 2));
  EXPECT_FALSE(NextTuner::choose(new_ones, 4));
  const void* const old_ones[] = {nullptr, nullptr, &kV2, &kV3, nullptr, nullptr, nullptr};
  EXPECT_EQ(NextTuner::choose(old_ones, 6)->version(), 3);
  EXPECT_EQ(NextTuner::choose(old_ones, 4)->version(), 3);
  const void* const newer[] = {nullptr, nullptr, nullptr, nullptr, &kV4, nullptr, &kV6};
  EXPECT_EQ(NextTuner::choose(newer, 3)->version(), 4);
  EXPECT_FALSE(NextTuner::choose(newer, 2));
  EXPECT_EQ(NextTuner::choose(newer, 5)->version(), 6);
}

TEST_F(NextTunerTest, PassesEverythingOn) {
  const void* const symbols[] = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, &kV6};
  const auto next = NextTuner::choose(symbols, 6);
  EXPECT_EQ(next->init({8, 2, nullptr, 99, &domains_, nullptr}, &context_), ncclSuccess);
  EXPECT_EQ(next->get_info(context_, question()), ncclSystemError);
  size_t size = 0;
  EXPECT_EQ(next->get_chunk_size(context_, {}, 100, 0, 0, 0, &size), ncclSuccess);
  EXPECT_EQ(next->finish(context_), ncclSuccess);
  EXPECT_THAT(told(), ElementsAre("init 99 8 2 5", "v4 1000 1 7 3 1", "chunk", "finish"));
  EXPECT_EQ(channels_, 4);
  EXPECT_EQ(size, 50u);
}

TEST_F(NextTunerTest, AsksAnOlderTunerWhatItUnderstands) {
  const void* const symbols[] = {nullptr, nullptr, nullptr, &kV3, nullptr, nullptr, nullptr};
  const auto next = NextTuner::choose(symbols, 5);
  EXPECT_EQ(next->init({8, 2, nullptr, 99, &domains_, nullptr}, &context_), ncclSuccess);
  EXPECT_EQ(next->get_info(context_, question()), ncclSuccess);
  size_t size = 11;
  EXPECT_EQ(next->get_chunk_size(context_, {}, 100, 0, 0, 0, &size), ncclSuccess);
  EXPECT_THAT(told(), ElementsAre("init 8 2", "v3 1000 1 7 3"));
  EXPECT_EQ(size, 11u);
}

TEST_F(NextTunerTest, TurnsAnOldAnswerIntoACost) {
  const void* const symbols[] = {nullptr, nullptr, &kV2, nullptr, nullptr, nullptr, nullptr};
  const auto next = NextTuner::choose(symbols, 6);
  for (auto& row : costs_) {
    for (float& cost : row) cost = 9;
  }
  costs_[tuner::kAlgorithmCollnetDirect][tuner::kProtocolSimple] = tuner::kIgnore;
  EXPECT_EQ(next->get_info(context_, question()), ncclSuccess);
  EXPECT_THAT(told(), ElementsAre("v2 1000 0 1 1"));
  EXPECT_EQ(costs_[1][2], 0);
  EXPECT_EQ(costs_[1][1], 9);

  costs_[1][2] = tuner::kIgnore;  // NCCL cannot do that: it stays so
  EXPECT_EQ(next->get_info(context_, question()), ncclSuccess);
  EXPECT_EQ(costs_[1][2], tuner::kIgnore);
}

}  // namespace
}  // namespace railyard::loader
