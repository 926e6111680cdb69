// SPDX-License-Identifier: Apache-2.0
// The exchange plan, carried out in memory for all ranks at once and compared with where every row
// belongs.
#include "plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "random.h"

namespace moe {
namespace {

using Counts = std::vector<std::int32_t>;
using Rows = std::vector<std::string>;  // what lies in each row of a buffer

struct Job {
  Job(int ranks_, Index local_, std::uint64_t seed) : ranks(ranks_), local(local_) {
    Random random(seed, "counts");
    for (int r = 0; r < ranks; ++r) {
      Counts counts(static_cast<std::size_t>(ranks * local));
      for (std::int32_t& count : counts) {
        count = random.below(2) == 0 ? 0 : static_cast<std::int32_t>(random.below(5));
      }
      sent.push_back(counts);
    }
  }

  // What the all-to-all of counts brings to `rank`.
  Counts received(int rank) const {
    Counts counts;
    for (int r = 0; r < ranks; ++r) {
      const auto begin = sent[static_cast<std::size_t>(r)].begin() + rank * local;
      counts.insert(counts.end(), begin, begin + local);
    }
    return counts;
  }

  ExchangePlan plan(int rank) const {
    return make_plan(sent[static_cast<std::size_t>(rank)].data(), received(rank).data(), rank,
                     ranks, local);
  }

  int ranks;
  Index local;
  std::vector<Counts> sent;
};

std::string row_name(int rank, Index expert, Index number) {
  return std::to_string(rank) + ":" + std::to_string(expert) + ":" + std::to_string(number);
}

// Sends and receives of a pair match in the order they are posted, as NCCL matches them.
void carry_out(const std::vector<Messages>& posted, const std::vector<Rows>& from,
               std::vector<Rows>& to) {
  std::map<std::pair<int, int>, std::vector<Message>> flows;
  for (std::size_t r = 0; r < posted.size(); ++r) {
    for (const Message& m : posted[r].sends) flows[{static_cast<int>(r), m.peer}].push_back(m);
  }
  std::map<std::pair<int, int>, std::size_t> next;
  for (std::size_t r = 0; r < posted.size(); ++r) {
    for (const Message& in : posted[r].receives) {
      const std::pair<int, int> pair{in.peer, static_cast<int>(r)};
      ASSERT_LT(next[pair], flows[pair].size()) << "a receive without a send";
      const Message& out = flows[pair][next[pair]++];
      ASSERT_EQ(out.rows, in.rows);
      ASSERT_GT(in.rows, 0);
      ASSERT_LE(in.row + in.rows, static_cast<Index>(to[r].size()));
      std::copy_n(from[static_cast<std::size_t>(in.peer)].begin() + out.row, out.rows,
                  to[r].begin() + in.row);
    }
  }
  for (const auto& [pair, flow] : flows) EXPECT_EQ(next[pair], flow.size()) << "a lost send";
}

TEST(Plan, BringsEveryRowToItsExpertAndBack) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const Job job(1 + static_cast<int>(seed % 7), 1 + static_cast<Index>(seed % 3), seed);
    std::vector<Messages> dispatch, combine;
    std::vector<Rows> sent, expected, arrived, returned;
    for (int r = 0; r < job.ranks; ++r) {
      const ExchangePlan plan = job.plan(r);
      dispatch.push_back(plan.dispatch);
      combine.push_back(plan.combine);
      Rows rows;
      for (Index e = 0; e < job.ranks * job.local; ++e) {
        const Index count = job.sent[static_cast<std::size_t>(r)][static_cast<std::size_t>(e)];
        for (Index i = 0; i < count; ++i) rows.push_back(row_name(r, e, i));
      }
      sent.push_back(rows);
      returned.emplace_back(rows.size());
      Rows wanted;
      for (Index e = 0; e < job.local; ++e) {
        const std::size_t before = wanted.size();
        for (int from = 0; from < job.ranks; ++from) {
          const Index expert = r * job.local + e;
          const Index count =
              job.sent[static_cast<std::size_t>(from)][static_cast<std::size_t>(expert)];
          for (Index i = 0; i < count; ++i) wanted.push_back(row_name(from, expert, i));
        }
        EXPECT_EQ(plan.rows_of_expert[static_cast<std::size_t>(e)], wanted.size() - before);
      }
      EXPECT_EQ(plan.received_rows, wanted.size());
      expected.push_back(wanted);
      arrived.emplace_back(wanted.size());
    }
    carry_out(dispatch, sent, arrived);
    EXPECT_EQ(arrived, expected);
    carry_out(combine, arrived, returned);
    EXPECT_EQ(returned, sent);
  }
}

TEST(Plan, OfNothingIsEmpty) {
  const Counts none(6, 0);
  const ExchangePlan plan = make_plan(none.data(), none.data(), 1, 3, 2);
  EXPECT_TRUE(plan.dispatch.sends.empty());
  EXPECT_TRUE(plan.dispatch.receives.empty());
  EXPECT_EQ(plan.received_rows, 0);
}

TEST(Plan, NoTwoRanksBeginWithTheSamePeer) {
  const Counts ones(4, 1);
  std::vector<int> first;
  for (int r = 0; r < 4; ++r) {
    first.push_back(make_plan(ones.data(), ones.data(), r, 4, 1).dispatch.sends[0].peer);
  }
  EXPECT_EQ(first, (std::vector<int>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace moe
