// SPDX-License-Identifier: Apache-2.0
//
// How the library loads plugins. Each test needs an environment of its own and is run alone.
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <set>
#include <sstream>

#include "world.h"

namespace railyard::emulator {
namespace {

struct Log {
  Log() : path(::testing::TempDir() + "plugin-log-" + std::to_string(::getpid())) {
    ::setenv("TEST_PLUGIN_LOG", path.c_str(), 1);
  }
  ~Log() { ::remove(path.c_str()); }
  std::vector<std::string> lines(const std::string& beginning) const {
    std::ifstream file(path);
    std::vector<std::string> found;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(beginning)) found.push_back(line);
    }
    return found;
  }
  std::string path;
};

void talk(Rank& rank) {
  Buffer<int> data(2, 1);
  ASSERT_NCCL(
      ncclAllReduce(data.data(), data.data(), 2, ncclInt32, ncclSum, rank.comm, rank.stream));
  ASSERT_NCCL(ncclGroupStart());
  ASSERT_NCCL(ncclSend(data.data(), 1, ncclInt32, 1 - rank.rank, rank.comm, rank.stream));
  ASSERT_NCCL(ncclRecv(data.data() + 1, 1, ncclInt32, 1 - rank.rank, rank.comm, rank.stream));
  ASSERT_NCCL(ncclGroupEnd());
  rank.synchronize();
}

TEST(Plugin, TunesEachCommunicator) {
  Log log;
  World(2).run([](Rank& rank) {
    talk(rank);
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclCommSplit(rank.comm, 0, 0, &child, nullptr));
    ASSERT_NCCL(ncclCommDestroy(child));
  });
  const auto inits = log.lines("init ");
  ASSERT_EQ(inits.size(), 4U);
  std::set<std::string> hashes;
  for (const std::string& line : inits) {
    hashes.insert(line);
    EXPECT_NE(line.find("ranks 2 nodes 1 domains 1"), std::string::npos) << line;
  }
  EXPECT_EQ(hashes.size(), 2U);  // parent's and child's, each alike on both ranks
  EXPECT_EQ(log.lines("asked for 4 of 8 bytes, 1").size(), 2U);
  EXPECT_EQ(log.lines("asked").size(), 2U);  // never for messages
  EXPECT_EQ(log.lines("finalize").size(), 4U);
}

TEST(Plugin, IsTakenInAnOlderVersion) {
  Log log;
  World(2).run(talk);
  EXPECT_EQ(log.lines("init ranks 2 nodes 1").size(), 2U);
  EXPECT_EQ(log.lines("asked for 4 of 8 bytes, 1").size(), 2U);
  EXPECT_EQ(log.lines("environment").size(), 0U);
}

TEST(Plugin, IsTheFirstKindInTheOldestVersions) {
  Log log;
  World(2).run(talk);
  EXPECT_EQ(log.lines("init of the first: ranks 2 nodes 1").size(), 2U);
  EXPECT_EQ(log.lines("asked for 4 of 8 bytes").size(), 2U);
  EXPECT_EQ(log.lines("finalize").size(), 2U);
}

TEST(Plugin, IsTheNewestKindThatBothKnow) {
  Log log;
  World(1).run([](Rank&) {});
  EXPECT_EQ(log.lines("newest environment of 2.30.7").size(), 1U);
  EXPECT_EQ(log.lines("environment of").size(), 0U);
  EXPECT_EQ(log.lines("newest").size(), 2U);
  EXPECT_EQ(log.lines("init ").size(), 1U);
}

TEST(Plugin, AnswersForTheEnvironment) {
  Log log;
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  EXPECT_EQ(log.lines("environment of 2.28.9").size(), 1U);
  Rank rank(0, 2);
  // It says NCCL_COMM_BLOCKING=0; the other rank never comes.
  EXPECT_EQ(ncclCommInitRankConfig(&rank.comm, 2, id, 0, nullptr), ncclInProgress);
  EXPECT_NCCL(ncclCommAbort(rank.comm));
  // Without a group the caller waits nevertheless.
  ASSERT_NCCL(ncclGetUniqueId(&id));
  EXPECT_EQ(ncclCommInitRank(&rank.comm, 1, id, 0), ncclSuccess);
  EXPECT_NCCL(ncclCommDestroy(rank.comm));
}

/// Files of settings come after the environment and are seen by everybody.
TEST(Plugin, FilesHaveSettings) {
  std::string path = ::testing::TempDir() + "nccl-conf-" + std::to_string(::getpid());
  std::ofstream(path) << "# NCCL_FIRST=1\nNCCL_COMM_BLOCKING=0\nnothing\nTEST_SET=file\n";
  ::setenv("NCCL_CONF_FILE", path.c_str(), 1);
  ::setenv("TEST_SET", "environment", 1);
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ::remove(path.c_str());
  EXPECT_STREQ(::getenv("NCCL_COMM_BLOCKING"), "0");
  EXPECT_STREQ(::getenv("TEST_SET"), "environment");
  EXPECT_EQ(::getenv("# NCCL_FIRST"), nullptr);
}

TEST(Plugin, CanBeLeftOut) {
  Log log;
  World(2).run(talk);
  EXPECT_TRUE(log.lines("").empty());
}

}  // namespace
}  // namespace railyard::emulator
