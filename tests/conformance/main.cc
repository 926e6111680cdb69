// SPDX-License-Identifier: Apache-2.0
//
// Runs cases and logs, rank by rank, what NCCL did. An ordinary NCCL program, started by a launcher
// as one process per rank, or with --threads N as N ranks in threads of one process.
//
//   conformance --list
//   conformance --log FILE [--threads 5] [--watch FILE] CASE ...
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "cases.h"

namespace conformance {

Cases all_cases() {
  Cases all;
  for (const auto& part :
       {surface_cases, collective_cases, message_cases, group_cases, life_cases, family_cases,
        stream_cases, graph_cases, argument_cases, thread_cases, nonblocking_cases}) {
    for (Case& one : part()) all.push_back(std::move(one));
  }
  return all;
}

namespace {

constexpr unsigned kCaseSeconds = 40;

struct Options {
  std::string log;
  std::vector<std::string> watched, cases;
};

int list() {
  for (const Case& one : all_cases()) {
    std::string rows;
    for (const char* row : one.rows) rows += std::string(rows.empty() ? "" : ",") + row;
    std::printf("%s\t%s\t%u\t%d\t%u\n", one.name.c_str(), rows.c_str(), one.layouts, one.since,
                one.traits);
  }
  return 0;
}

/// For whoever reads the log: how long these files were when all ranks had ended the case.
void note_sizes(const Options& options, std::FILE* log) {
  std::fputs("# sizes", log);
  for (const std::string& file : options.watched) {
    struct stat found {};
    const bool there = stat(file.c_str(), &found) == 0;
    std::fprintf(log, " %lld", there ? static_cast<long long>(found.st_size) : 0LL);
  }
  std::fputc('\n', log);
}

void run(World& world, const Options& options) {
  std::FILE* const log = std::fopen((options.log + "." + std::to_string(world.rank)).c_str(), "w");
  if (log == nullptr) fail("cannot write " + options.log);
  std::setvbuf(log, nullptr, _IOLBF, BUFSIZ);
  Cases cases = all_cases();
  for (Case& one : unlike_cases()) cases.push_back(std::move(one));
  for (const std::string& name : options.cases) {
    alarm(kCaseSeconds);  // ends the process
    std::fprintf(log, "== %s\n", name.c_str());
    for (const Case& one : cases) {
      if (one.name != name) continue;
      Trial trial(world, log);
      one.run(trial);
    }
    world.barrier();
    if (world.rank == 0) note_sizes(options, log);
    std::fprintf(log, "-- %s\n", name.c_str());
    world.barrier();
  }
  alarm(0);
  std::fclose(log);
}

void run_threads(int ranks, const Options& options) {
  ThreadMeeting meeting(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { run(*make_thread_world(rank, ranks, meeting), options); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  conformance::Options options;
  int threads = 0;
  bool list = false;
  CLI::App app{"Cases about what NCCL promises"};
  app.add_flag("--list", list, "Name, rows, layouts, first version and traits of every case");
  app.add_option("--log", options.log, "Where logs go, with the rank after it");
  app.add_option("--threads", threads, "Ranks, all in this process, one per device");
  app.add_option("--watch", options.watched, "File whose size is noted after each case");
  app.add_option("cases", options.cases, "Which to run, in this order");
  CLI11_PARSE(app, argc, argv);
  if (list) return conformance::list();
  if (threads > 0) {
    conformance::run_threads(threads, options);
  } else {
    conformance::run(*conformance::make_process_world(), options);
  }
  return 0;
}
