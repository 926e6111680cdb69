// SPDX-License-Identifier: Apache-2.0
// The trainer as its users start it: alone, and as the ranks of an emulated cluster.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace moe {
namespace {

using nlohmann::json;

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

struct Outcome {
  int status;
  std::string output;  // both streams
};

Outcome shell(const std::string& command) {
  Outcome outcome{-1, ""};
  std::FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> piece{};
  std::size_t got = 0;
  while ((got = std::fread(piece.data(), 1, piece.size(), pipe)) > 0) {
    outcome.output.append(piece.data(), got);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class Trainer : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "moe-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::ofstream text(folder_ + "/text");
    for (int i = 0; i < 400; ++i) {
      text << "the cars wait in the yard until the engine comes along rail " << i << ".\n";
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string options(const std::string& more) const {
    return " --width 16 --hidden 16 --heads 2 --sequence 16 --data " + folder_ + "/text " + more;
  }
  Outcome alone(const std::string& more) const {
    return shell(variable("MOE_TRAIN") + options(more));
  }
  // Runs on an emulated cluster and returns the JSON file.
  json on_cluster(const std::string& shape, const std::string& more) const {
    const std::string file = folder_ + "/out.json";
    const Outcome outcome = shell(variable("EMULATE") + " " + shape + " --timeout 100 -- " +
                                  variable("MOE_TRAIN") + options(more) + " --json " + file);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return outcome.status == 0 ? json::parse(std::ifstream(file)) : json();
  }
  void expect_usage(const std::string& more, const std::string& part) const {
    const Outcome outcome = alone(more);
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
  }

  std::string folder_;
};

TEST_F(Trainer, HelpListsTheOptions) {
  const Outcome outcome = shell(variable("MOE_TRAIN") + " --help");
  EXPECT_EQ(outcome.status, 0);
  for (const char* option : {"--data", "--experts", "--steps", "--json", "--seed"}) {
    EXPECT_NE(outcome.output.find(option), std::string::npos) << option;
  }
}

TEST_F(Trainer, RefusesWhatMakesNoSense) {
  expect_usage("--steps 0", "--steps");
  expect_usage("--no-such-option", "--no-such-option");
  expect_usage("--heads 3", "does not divide --width");
  expect_usage("--experts 1", "too few");
  expect_usage("--data " + folder_ + "/absent", "cannot read");
  expect_usage("--sequence 4000", "too little");
  expect_usage("--experts 1000000 --memory-mb 100", "is more than 1 rank can hold");
  expect_usage("--json " + folder_ + "/absent/file", "cannot write");
  const Outcome no_data = shell(variable("MOE_TRAIN"));
  EXPECT_EQ(no_data.status, 2);
  EXPECT_NE(no_data.output.find("--data is required"), std::string::npos) << no_data.output;
}

TEST_F(Trainer, RefusesExpertsThatRanksCannotShare) {
  const Outcome outcome = shell(variable("EMULATE") + " --nodes 1 --gpus 3 --timeout 60 -- " +
                                variable("MOE_TRAIN") + options("--experts 4"));
  EXPECT_EQ(outcome.status, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("choose a multiple of 3"), std::string::npos) << outcome.output;
}

TEST_F(Trainer, RefusesTheLargestSizesWithoutOverflow) {
  expect_usage("--experts 1048576 --layers 1024 --width 65536 --hidden 65536", "can hold");
}

TEST_F(Trainer, PrintsAndWritesEveryStep) {
  const std::string file = folder_ + "/out.json";
  const Outcome outcome = alone("--steps 3 --json " + file);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const char* part : {"step     3", "loss", "tokens/s", "all-to-all"}) {
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
  }
  const json out = json::parse(std::ifstream(file));
  ASSERT_EQ(out["steps"].size(), 3U);
  EXPECT_EQ(out["steps"][2]["loss"], out["final_loss"]);
  EXPECT_EQ(out["parameters_sha256"].get<std::string>().size(), 64U);
  EXPECT_EQ(out["config"]["ranks"], 1);
  EXPECT_EQ(out["config"]["experts"], 2);
  for (const char* field :
       {"step_ms_median", "alltoall_ms_median", "tokens_per_s", "validation_loss"}) {
    EXPECT_GT(out[field].get<double>(), 0) << field;
  }
}

TEST_F(Trainer, TwoRunsEndWithTheSameParameters) {
  const std::string shape = "--layout 2,1";
  const std::string more = "--steps 4 --batch 2 --experts 6";
  const json first = on_cluster(shape, more);
  const json second = on_cluster(shape, more);
  EXPECT_EQ(first["parameters_sha256"], second["parameters_sha256"]);
  EXPECT_EQ(first["final_loss"], second["final_loss"]);
  EXPECT_NE(on_cluster(shape, more + " --seed 2")["parameters_sha256"], first["parameters_sha256"]);
}

// Without the balance loss, which each rank takes over its own tokens, how many ranks share the
// sequences and the experts changes only the order of sums.
TEST_F(Trainer, LossDoesNotDependOnTheNumberOfRanks) {
  const std::string more = "--steps 6 --experts 4 --balance 0 --batch ";
  const json one = on_cluster("--nodes 1 --gpus 1", more + "4");
  const json two = on_cluster("--nodes 2 --gpus 1", more + "2");
  const json four = on_cluster("--nodes 2 --gpus 2", more + "1");
  ASSERT_EQ(one["steps"].size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    const double loss = one["steps"][i]["loss"].get<double>();
    EXPECT_NEAR(two["steps"][i]["loss"].get<double>(), loss, 2e-4 * loss) << "step " << i;
    EXPECT_NEAR(four["steps"][i]["loss"].get<double>(), loss, 2e-4 * loss) << "step " << i;
  }
  EXPECT_LT(one["final_loss"].get<double>(), one["steps"][0]["loss"].get<double>());
}

// Most experts get no token at all, so most messages do not exist.
TEST_F(Trainer, RunsWithFarMoreExpertsThanTokens) {
  const json out = on_cluster("--nodes 2 --gpus 2", "--steps 2 --batch 1 --experts 512");
  EXPECT_TRUE(std::isfinite(out["final_loss"].get<double>()));
}

}  // namespace
}  // namespace moe
