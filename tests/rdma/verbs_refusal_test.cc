// SPDX-License-Identifier: Apache-2.0
//
// Machines and settings that verbs cannot be used with: each refusal says what, where and what to
// do. In the soft-RoCE machine, as its root.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "verbs_kind.h"

namespace railyard::verbs {
namespace {

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  std::printf("said: %s\n", text.c_str());
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << text;
}

void expect_refused(const Options& options, const std::vector<std::string>& words) {
  const auto made = transport::make_verbs(options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kUnavailable);
  expect_words(made.status().message(), words);
  EXPECT_FALSE(survey(options).ok());
}

TEST(VerbsRefusalTest, NoSuchDevice) {
  Options options = options_for("rxe1");
  options.hca = "=mlx5_0";
  expect_refused(options, {"NCCL_IB_HCA=\"=mlx5_0\"", "rxe1 port 1 (ruled out by NCCL_IB_HCA)"});
}

TEST(VerbsRefusalTest, WrongGidIndex) {
  Options options = options_for("rxe1");
  options.gid_index = 7;
  expect_refused(
      options, {"GID index 7 (NCCL_IB_GID_INDEX) of rxe1 port 1", "1 (::ffff:10.10.0.1, RoCE v2)"});
  options.gid_index = 100000;
  expect_refused(options, {"GID index 100000"});
}

TEST(VerbsRefusalTest, WrongPartitionIndex) {
  Options options = options_for("rxe1");
  options.pkey_index = 1000;
  expect_refused(options, {"NCCL_IB_PKEY=1000", "rxe1 port 1"});
}

TEST(VerbsRefusalTest, SwitchedOff) {
  Options options = options_for("rxe1");
  options.disabled = true;
  expect_refused(options, {"NCCL_IB_DISABLE"});
}

TEST(VerbsRefusalTest, PortDown) {
  ASSERT_EQ(std::system("ip link set p1 down"), 0);
  const Options options = options_for("rxe1");
  // The port notices a moment later.
  for (int i = 0; i < 1000 && transport::make_verbs(options).ok(); ++i) usleep(10000);
  expect_refused(options, {"rxe1 port 1 (down)", "bring a port up"});
  ASSERT_EQ(std::system("ip link set p1 up"), 0);
  for (int i = 0; i < 1000 && !transport::make_verbs(options).ok(); ++i) usleep(10000);
  EXPECT_TRUE(transport::make_verbs(options).ok());
}

/// Without the right to exceed limits, as unprivileged processes are.
bool give_up_lock_privilege() {
  __user_cap_header_struct header{};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  data[0].permitted &= ~(1U << CAP_IPC_LOCK);
  return syscall(SYS_capset, &header, data) == 0;
}

int listen_with_little_lockable_memory() {
  const rlimit limit = {1 << 20, 1 << 20};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !give_up_lock_privilege()) return 2;
  std::unique_ptr<transport::Transport> transport = make_one(options_for("rxe1"));
  std::vector<std::byte> memory(16 << 20);
  transport::Area area;
  area.host = memory.data();
  area.bytes = memory.size();
  const Status status = transport->listen(area, area);
  EXPECT_FALSE(status.ok());
  expect_words(status.message(), {"16777216 bytes of staging memory", "rxe1 port 1", "1024 KiB",
                                  "ulimit -l unlimited", "LimitMEMLOCK=infinity"});
  return testing::Test::HasFailure() ? 1 : 0;
}

TEST(VerbsRefusalTest, TooLittleLockableMemory) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int result = listen_with_little_lockable_memory();
    std::fflush(stdout);
    _exit(result);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(VerbsRefusalTest, SoftRoceRegistersNoDmabuf) {
  Options options = options_for("rxe1");
  options.gpu_compute = 90;
  options.gpu_dmabuf = true;
  options.gdr_level = Distance::kSystem;
  const Result<Survey> found = survey(options);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_FALSE(found->landing_on_gpu);
  EXPECT_FALSE(found->staging_on_gpu);
  EXPECT_EQ(found->memory, "host memory");
  expect_words(found->why_not_better,
               {"registers no dma-buf (Operation not supported)", "nvidia_peermem is not loaded"});
  options.gdr_level = Distance::kSwitch;
  expect_words(survey(options)->why_not_better, {"NCCL_NET_GDR_LEVEL"});
}

TEST(VerbsRefusalTest, ASurveyListsRails) {
  Options options = options_for("rxe1");
  options.hca = "rxe";
  options.gpu_count = 4;
  options.gpu_index = 2;
  const Result<Survey> found = survey(options);
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_GE(found->nics.size(), 4U);
  EXPECT_EQ(found->nics[2].place, "rxe3");
  EXPECT_EQ(found->nearest(), 2);
  expect_words(found->nics[2].text,
               {"rxe3 port 1", "RoCE v2", "GID 1 ::ffff:10.10.0.3", "MTU 4096"});
}

}  // namespace
}  // namespace railyard::verbs
