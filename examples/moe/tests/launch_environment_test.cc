// SPDX-License-Identifier: Apache-2.0
// Variables of the launchers, whole, half-set and senseless.
#include "launch_environment.h"

#include <map>

#include <gtest/gtest.h>

#include "error.h"

namespace moe {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_refused(const Variables& variables, const std::string& part) {
  try {
    read(variables);
    ADD_FAILURE() << "taken, though " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), kExitUsage);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(LaunchEnvironment, AloneIsAJobOfOne) {
  const LaunchEnvironment launch = read({});
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.ranks, 1);
  EXPECT_EQ(launch.local_rank, 0);
}

TEST(LaunchEnvironment, Torchrun) {
  Variables variables = {{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "first"},
                         {"MASTER_PORT", "1234"}};
  LaunchEnvironment launch = read(variables);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.ranks, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_ranks, 4);
  EXPECT_EQ(launch.master_address, "first");
  EXPECT_EQ(launch.store_port, 1234);
  // Where torchrun's agent holds the port, the next one is ours.
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read(variables).store_port, 1235);
}

TEST(LaunchEnvironment, Mpirun) {
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(read(variables).rank, 1);
  EXPECT_EQ(read(variables).master_address, "127.0.0.1");
  variables["OMPI_COMM_WORLD_SIZE"] = "4";
  expect_refused(variables, "-x MASTER_ADDR");
  variables["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(read(variables).master_address, "10.0.0.1");
}

TEST(LaunchEnvironment, Srun) {
  Variables variables = {{"SLURM_PROCID", "6"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_LOCALID", "2"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_TASKS_PER_NODE", "4(x2)"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "10.1.1.1"}};
  LaunchEnvironment launch = read(variables);
  EXPECT_EQ(launch.rank, 6);
  EXPECT_EQ(launch.ranks, 8);
  EXPECT_EQ(launch.local_rank, 2);
  EXPECT_EQ(launch.local_ranks, 4);
  EXPECT_EQ(launch.master_address, "10.1.1.1");
  EXPECT_EQ(launch.store_port, 29500);
  variables["SLURM_JOB_NODELIST"] = "gpu[03-07,12],login";
  EXPECT_EQ(read(variables).master_address, "gpu03");
  variables["SLURM_STEP_NUM_TASKS"] = "7";  // of this step, fewer than of the job
  EXPECT_EQ(read(variables).ranks, 7);
  variables["MASTER_PORT"] = "2000";
  EXPECT_EQ(read(variables).store_port, 2000);
}

// A batch script has srun's variables too, but is no rank of a step.
TEST(LaunchEnvironment, BatchScriptWithoutSrunIsAlone) {
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}}).ranks, 1);
}

TEST(LaunchEnvironment, FirstHostOfANodeList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("b,a"), "b");
  EXPECT_EQ(first_host("n[7]-ib,x"), "n7-ib");
  EXPECT_EQ(first_host("rack[1-2]node[05,08]"), "rack1node05");
  EXPECT_THROW(first_host("n[1"), Error);
}

TEST(LaunchEnvironment, RefusesHalfSetAndSenseless) {
  expect_refused({{"RANK", "0"}}, "WORLD_SIZE is not set");
  expect_refused({{"WORLD_SIZE", "2"}}, "RANK is not set");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}, "MASTER_ADDR");
  const Variables good = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "a"}};
  for (const auto& [name, value] : Variables{{"RANK", "2"},
                                             {"RANK ", "-1"},
                                             {"WORLD_SIZE", "0"},
                                             {"WORLD_SIZE ", "2x"},
                                             {"LOCAL_RANK", "99999999999"},
                                             {"MASTER_PORT", "65536"}}) {
    Variables bad = good;
    const std::string plain = name.substr(0, name.find(' '));
    bad[plain] = value;
    expect_refused(bad, plain + "=" + value + " is not a number");
  }
  Variables no_local = good;
  no_local.erase("LOCAL_RANK");
  expect_refused(no_local, "LOCAL_RANK is not set");
}

}  // namespace
}  // namespace moe
