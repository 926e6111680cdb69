// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes, by the launcher. EMULATE and RANK_PROGRAM name the executables.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace railyard::emulator {
namespace {

struct Outcome {
  int status;
  std::string output;
};

Outcome launch(const std::string& options, const std::string& arguments) {
  std::string command = std::string(::getenv("EMULATE")) + " --timeout 50 --tag-output " + options +
                        " -- " + ::getenv("RANK_PROGRAM") + " " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  Outcome outcome{-1, ""};
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t n; (n = ::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.output.append(buffer, n);
  int raw = ::pclose(pipe);
  outcome.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : -1;
  return outcome;
}

class Folder {
 public:
  Folder() { EXPECT_NE(::mkdtemp(path_), nullptr); }
  ~Folder() {
    ::unlink(file().c_str());
    ::rmdir(path_);
  }
  std::string file() const { return std::string(path_) + "/stats"; }

 private:
  char path_[32] = "/tmp/nccl_testXXXXXX";
};

/// The numbers of one line of statistics.
std::map<std::string, uint64_t> parse(const std::string& line) {
  std::map<std::string, uint64_t> result;
  for (size_t at = 0; (at = line.find('"', at)) != std::string::npos;) {
    size_t end = line.find('"', at + 1);
    size_t colon = line.find(':', end);
    result[line.substr(at + 1, end - at - 1)] = std::stoull(line.substr(colon + 1));
    at = colon;
  }
  return result;
}

TEST(Process, ExchangesAndCounts) {
  Folder folder;
  Outcome outcome = launch(
      "--layout 2,3,1 --order cyclic --env EMULATOR_NCCL_STATS=" + folder.file(), "exchange");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const int node[] = {0, 1, 2, 0, 1, 1};
  constexpr uint64_t kBlock = 400'000;
  std::ifstream file(folder.file());
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    auto stats = parse(line);
    ASSERT_EQ(stats["ranks"], 6U) << line;
    auto rank = static_cast<int>(stats["rank"]);
    std::map<std::string, uint64_t> expected{{"p2p_self_bytes", kBlock}, {"p2p_self_messages", 1}};
    for (int peer = 0; peer < 6; ++peer) {
      if (peer == rank) continue;
      std::string way = node[peer] == node[rank] ? "p2p_intranode_" : "p2p_internode_";
      expected[way + "bytes"] += kBlock;
      expected[way + "messages"] += 1;
      if (peer > rank) continue;
      expected[way + "bytes"] += static_cast<uint64_t>(rank + 1);
      expected[way + "messages"] += 1;
    }
    for (const auto& [name, value] : expected) EXPECT_EQ(stats[name], value) << name << line;
  }
  EXPECT_EQ(lines, 6);
}

TEST(Process, SixteenRanks) {
  Outcome outcome = launch("--nodes 4 --gpus 4", "exchange");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(Process, RanksMustBeOfOneVersion) {
  std::string folders = std::filesystem::path(::getenv("EMULATE")).parent_path().parent_path();
  Outcome outcome = launch(
      "--nodes 2 --gpus 1 --env-on 1:LD_LIBRARY_PATH=" + folders + "/nccl-2.27:" + folders + "/lib",
      "refused");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(launch("--nodes 2 --gpus 1 --nccl 2.27", "refused").status, 1);
  EXPECT_EQ(launch("--nodes 2 --gpus 1 --nccl 1.2", "refused").status, 2);
}

/// Starts the ranks without the launcher, which would stop the survivors.
std::vector<int> statuses(const std::vector<int>& nodes, int victim) {
  std::string port = std::to_string(20000 + ::getpid() % 12000);
  std::vector<pid_t> pids;
  std::map<int, int> locals;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    std::string local = std::to_string(locals[nodes[rank]]++);
    std::string die = std::to_string(victim);
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(nodes.size()).c_str(), 1);
    ::setenv("LOCAL_RANK", local.c_str(), 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", port.c_str(), 1);
    ::setenv("NCCL_HOSTID", std::to_string(nodes[rank]).c_str(), 1);
    ::execl(::getenv("RANK_PROGRAM"), "rank", "die", die.c_str(), nullptr);
    ::_exit(127);
  }
  std::vector<int> result;
  for (pid_t pid : pids) {
    int raw;
    ::waitpid(pid, &raw, 0);
    result.push_back(WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw));
  }
  return result;
}

TEST(Process, DeathIsSeenInTheNodeAndElsewhere) {
  EXPECT_EQ(statuses({0, 0, 1}, 1), (std::vector<int>{0, 128 + SIGKILL, 0}));
}

}  // namespace
}  // namespace railyard::emulator
