// SPDX-License-Identifier: Apache-2.0
//
// Scenarios about what a process owns: what communicators leave behind in it, and its children.
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "job.h"

namespace integration {
namespace {

constexpr size_t kCount = 2000;
constexpr int kTries = 500;

int entries(const char* folder) {
  DIR* const open = opendir(folder);
  REQUIRE(open != nullptr);
  int count = 0;
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

/// Links of /proc/self/fd that contain `word`.
int descriptors(const char* word) {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) {
    char target[256] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target, sizeof target - 1) <= 0) continue;
    if (std::string(target).find(word) != std::string::npos) ++count;
  }
  return count;
}

struct Holdings {
  int descriptors = 0, threads = 0, shared_mappings = 0;
  size_t device_bytes = 0;

  static Holdings now() {
    Holdings held;
    held.descriptors = entries("/proc/self/fd");
    held.threads = entries("/proc/self/task");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("s ", line.find(' ')) == line.find(' ') + 4) ++held.shared_mappings;
    }
    size_t free = 0, total = 0;
    REQUIRE(cudaMemGetInfo(&free, &total));
    held.device_bytes = total - free;
    return held;
  }
  bool within(const Holdings& limit) const {
    return descriptors <= limit.descriptors && threads <= limit.threads &&
           shared_mappings <= limit.shared_mappings && device_bytes <= limit.device_bytes;
  }
  std::string text() const {
    return std::to_string(descriptors) + " descriptors, " + std::to_string(threads) + " threads, " +
           std::to_string(shared_mappings) + " shared mappings, " + std::to_string(device_bytes) +
           " bytes on the device";
  }
};

/// Children of `world`, each used and then ended in one of the ways there are.
void make_and_end(ncclComm_t world, cudaStream_t stream, int rank, int count) {
  for (int i = 0; i < count; ++i) {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = i % 8 < 4 ? 1 : 0;
    REQUIRE(ncclCommSplit(world, 0, rank, &comm, &config));
    exchange_all(comm, stream, 100, i);
    switch (i % 4) {
      case 0:
        exchange_all(world, stream, 1, i);  // nobody needs it any more
        REQUIRE(ncclCommAbort(comm));
        break;
      case 1:
        settle(comm, ncclCommFinalize(comm));
        [[fallthrough]];
      default: {
        const ncclResult_t ended = ncclCommDestroy(comm);
        REQUIRE(ended == ncclSuccess || ended == ncclInProgress);
      }
    }
  }
}

/// 200 communicators, made and ended, leave nothing behind.
void leaks(Job& job) {
  const ncclComm_t world = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(world, stream, kCount, 0);
  make_and_end(world, stream, job.rank, 12);
  const Holdings before = Holdings::now();
  make_and_end(world, stream, job.rank, 200);
  Holdings after = Holdings::now();
  for (int i = 0; i < kTries && !after.within(before); ++i) {
    // Other processes close their ends when they come to it.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    after = Holdings::now();
  }
  std::fprintf(stderr, "leaks: rank %d before: %s\nleaks: rank %d after:  %s\n", job.rank,
               before.text().c_str(), job.rank, after.text().c_str());
  REQUIRE(after.within(before));
  REQUIRE(ncclCommDestroy(world));
}

void expect_exit(pid_t child) {
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  REQUIRE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

/// Data loaders: forked when all is set up, one ends by exit(), one lives on for longer than its
/// parent's communicators. The parent goes on, and so do they.
void loaders(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t brief = fork();
  if (brief == 0) std::exit(descriptors("memfd:railyard") == 0 ? 0 : 1);
  const pid_t lasting = fork();
  if (lasting == 0) {
    close(ends[1]);
    char word = 0;
    const bool told = read(ends[0], &word, 1) == 1;
    std::exit(told && descriptors("memfd:railyard") == 0 ? 0 : 1);
  }
  expect_exit(brief);
  exchange_all(comm, stream, kCount, 2);
  REQUIRE(ncclCommDestroy(comm));
  const ncclComm_t next = job.create(1);
  exchange_all(next, stream, kCount, 3);
  REQUIRE(ncclCommDestroy(next));
  REQUIRE(write(ends[1], "x", 1) == 1);
  expect_exit(lasting);
  // What is executed inherits nothing either.
  const pid_t other = fork();
  if (other == 0) {
    execl("/bin/sh", "sh", "-c", "! ls -l /proc/self/fd | grep -q memfd:railyard", nullptr);
    _exit(127);
  }
  expect_exit(other);
}

/// Rank 1 is gone, but a child of it lives: the others notice all the same.
void orphan(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  if (job.rank == 1) {
    if (fork() == 0) {
      for (const int fd : {0, 1, 2}) close(fd);  // the launcher waits for their end
      alarm(20);
      pause();
    }
    _exit(0);
  }
  const Buffer& buffer = *new Buffer(kCount);
  REQUIRE(ncclRecv(buffer.data(), kCount, ncclInt32, 1, comm, stream));
  const ncclResult_t state = wait_for_error(comm);
  std::fprintf(stderr, "orphan: rank %d: %s\n", job.rank, ncclGetLastError(comm));
  REQUIRE(state == ncclRemoteError);
  REQUIRE(ncclCommAbort(comm));
}

/// The rank itself is a child: ids were made in the parent, which has no GPU.
void forked_ranks(Job& job) {
  const ncclComm_t comm = job.create(0);
  const cudaStream_t stream = job.stream();
  exchange_all(comm, stream, kCount, 1);
  ncclComm_t part = nullptr;
  REQUIRE(ncclCommSplit(comm, 0, job.rank, &part, nullptr));
  exchange_all(part, stream, kCount, 2);
  REQUIRE(ncclCommDestroy(part));
  REQUIRE(ncclCommDestroy(comm));
}

}  // namespace

int run_in_child(const Scenario& scenario, size_t ids) {
  std::vector<ncclUniqueId> made = make_ids(ids);
  ncclUniqueId unused;
  REQUIRE(ncclGetUniqueId(&unused));  // every parent has used NCCL
  const pid_t child = fork();
  if (child == 0) {
    Job job(std::move(made));
    scenario.run(job);
    std::exit(0);
  }
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1;
}

const std::vector<Scenario> kProcesses = {
    {"leaks", leaks},
    {"loaders", loaders},
    {"orphan", orphan},
    {"forked_ranks", forked_ranks},
};

}  // namespace integration
