// SPDX-License-Identifier: Apache-2.0
//
// The launcher from outside: places, variables, output, statuses, and that nothing outlives it.
// EMULATE names the executable.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "layout.h"

namespace railyard::emulator {
namespace {

struct Outcome {
  int status;
  std::string output;  ///< stdout and stderr

  /// Lines in a fixed order.
  std::vector<std::string> lines() const {
    std::vector<std::string> result;
    std::istringstream stream(output);
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    std::sort(result.begin(), result.end());
    return result;
  }
};

class Running {
 public:
  explicit Running(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), ::getenv("EMULATE"));
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) ::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    source_ = ends[0];
  }
  ~Running() { ::close(source_); }

  pid_t pid() const { return pid_; }
  std::string read_line() {
    std::string line;
    for (char c; ::read(source_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  /// Returns when all holders of the output are gone, not only the launcher.
  Outcome wait() {
    Outcome outcome;
    char buffer[4096];
    for (ssize_t n; (n = ::read(source_, buffer, sizeof buffer)) > 0;) {
      outcome.output.append(buffer, static_cast<size_t>(n));
    }
    int raw;
    ::waitpid(pid_, &raw, 0);
    outcome.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    return outcome;
  }

 private:
  pid_t pid_;
  int source_;
};

Outcome emulate(std::vector<std::string> options, const std::string& script) {
  options.insert(options.end(), {"--", "/bin/sh", "-c", script});
  return Running(options).wait();
}

std::vector<int> nodes_of(const std::vector<int>& gpus, const std::string& order) {
  std::string error;
  std::vector<int> nodes;
  for (const Place& place : place_ranks(gpus, order, &error)) nodes.push_back(place.node);
  EXPECT_EQ(nodes.empty(), !error.empty());
  return nodes;
}

TEST(Layout, OrdersRanks) {
  EXPECT_EQ(nodes_of({2, 3, 1}, "block"), (std::vector<int>{0, 0, 1, 1, 1, 2}));
  EXPECT_EQ(nodes_of({2, 3, 1}, "cyclic"), (std::vector<int>{0, 1, 2, 0, 1, 1}));
  EXPECT_EQ(nodes_of({2, 2}, "0,1,1,0"), (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(nodes_of({}, "1,0,1"), (std::vector<int>{1, 0, 1}));
}

TEST(Layout, RefusesNonsense) {
  EXPECT_TRUE(nodes_of({2, 0}, "block").empty());
  EXPECT_TRUE(nodes_of({2, 2}, "0,1,1,1").empty());
  EXPECT_TRUE(nodes_of({}, "0,2").empty());
  EXPECT_TRUE(nodes_of({1}, "random").empty());
  EXPECT_TRUE(nodes_of({1}, "0,").empty());
  EXPECT_FALSE(parse_numbers("1,-2"));
  EXPECT_FALSE(parse_numbers(""));
}

TEST(Launch, SetsVariables) {
  Outcome outcome = emulate({"--layout", "2,1", "--order", "cyclic"},
                            "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK "
                            "$NODE_RANK $MASTER_ADDR $NCCL_HOSTID $EMULATOR_GPUS");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.lines(), (std::vector<std::string>{
                                 "0/3 0/2 0 0 127.0.0.1 node0 2",
                                 "1/3 0/1 1 1 127.0.0.1 node1 1",
                                 "2/3 1/2 0 0 127.0.0.1 node0 2",
                             }));
}

TEST(Launch, SetsGivenVariablesAndPreload) {
  Outcome outcome = emulate({"--nodes", "1", "--gpus", "3", "--env", "A=1=2", "--env-on", "1:A=x y",
                             "--preload", "/proc/self/exe", "--no-preload-on", "0,2"},
                            "echo $RANK $A ${LD_PRELOAD:+preloaded}");
  // The preloaded file is no library: the loader says so on the one rank that has it.
  EXPECT_EQ(outcome.status, 0);
  auto lines = outcome.lines();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "0 1=2"), 1) << outcome.output;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "1 x y preloaded"), 1) << outcome.output;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "2 1=2"), 1) << outcome.output;
}

TEST(Launch, TagsLines) {
  Outcome outcome = emulate({"--nodes", "2", "--gpus", "1", "--tag-output"},
                            "echo one; echo two >&2; printf three");
  EXPECT_EQ(outcome.lines(), (std::vector<std::string>{"[0] one", "[0] three", "[0] two", "[1] one",
                                                       "[1] three", "[1] two"}));
}

TEST(Launch, ReturnsFirstFailureAndStopsOthers) {
  Outcome outcome =
      emulate({"--nodes", "1", "--gpus", "3"}, "[ $RANK != 1 ] || exit 7; sleep 1000 & wait");
  EXPECT_EQ(outcome.status, 7);
  EXPECT_NE(outcome.output.find("rank 1 (node 0) exited with status 7"), std::string::npos);
  outcome = emulate({"--nodes", "1", "--gpus", "2"}, "[ $RANK != 1 ] || kill -9 $$; sleep 1000");
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
}

TEST(Launch, KillsWhatIgnoresTheRequestToStop) {
  char folder[] = "/tmp/launch_testXXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  std::string fifo = std::string(folder) + "/ready";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  Outcome outcome = emulate({"--nodes", "1", "--gpus", "2", "--env", "FIFO=" + fifo},
                            "[ $RANK = 0 ] && { read line < $FIFO; exit 3; }; trap '' TERM; "
                            "echo > $FIFO; while :; do sleep 1000; done");
  EXPECT_EQ(outcome.status, 3) << outcome.output;
  ::unlink(fifo.c_str());
  ::rmdir(folder);
}

TEST(Launch, StopsAfterTimeout) {
  Outcome outcome = emulate({"--nodes", "1", "--gpus", "2", "--timeout", "0.2"}, "sleep 1000");
  EXPECT_EQ(outcome.status, 124);
  EXPECT_NE(outcome.output.find("still running: rank 0 1"), std::string::npos) << outcome.output;
}

TEST(Launch, KillsProcessesThatRanksLeaveBehind) {
  // wait() returns only when the background process, too, has let go of the output.
  EXPECT_EQ(emulate({"--nodes", "1", "--gpus", "2"}, "sleep 1000 & exit 0").status, 0);
}

TEST(Launch, PassesSignalsOn) {
  Running running({"--nodes", "1", "--gpus", "1", "--", "/bin/sh", "-c",
                   "trap 'echo usr' USR1; trap 'echo term; exit 0' TERM; echo ready; "
                   "while :; do sleep 1000 & wait; done"});
  EXPECT_EQ(running.read_line(), "ready");
  ::kill(running.pid(), SIGUSR1);
  EXPECT_EQ(running.read_line(), "usr");
  ::kill(running.pid(), SIGTERM);
  Outcome outcome = running.wait();
  EXPECT_EQ(outcome.output, "term\n");
  EXPECT_EQ(outcome.status, 128 + SIGTERM);
}

TEST(Launch, DiesWithItsRanks) {
  Running running(
      {"--nodes", "1", "--gpus", "2", "--", "/bin/sh", "-c", "echo ready; exec sleep 1000"});
  EXPECT_EQ(running.read_line(), "ready");
  EXPECT_EQ(running.read_line(), "ready");
  ::kill(running.pid(), SIGKILL);
  EXPECT_EQ(running.wait().status, 128 + SIGKILL);
}

TEST(Launch, ExplainsWrongUse) {
  auto refused = [](std::vector<std::string> arguments) {
    Outcome outcome = Running(std::move(arguments)).wait();
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    return outcome.output;
  };
  EXPECT_NE(refused({"--nodes", "2", "--gpus", "1"}).find("after --"), std::string::npos);
  EXPECT_NE(refused({"--", "true"}).find("--layout 2,3,1"), std::string::npos);
  EXPECT_NE(refused({"--layout", "2,x", "--", "true"}).find("as in 2,3,1"), std::string::npos);
  EXPECT_NE(refused({"--layout", "2", "--env-on", "2:A=1", "--", "true"}).find("does not exist"),
            std::string::npos);
  EXPECT_EQ(Running({"--help"}).wait().status, 0);
  EXPECT_EQ(Running({"--layout", "1", "--", "/no/such/program"}).wait().status, 127);
}

}  // namespace
}  // namespace railyard::emulator
