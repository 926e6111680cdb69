// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "summary.h"

namespace railyard::command {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "librailyard.so";
constexpr int kUsage = 2, kCannotStart = 127;
constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};

int fail(int status, const std::string& message) {
  ::fprintf(stderr, "railyard: %s\n", message.c_str());
  return status;
}

/// Where the library lies beside this command: installed, or in the folder of a build. Empty: not
/// found.
std::string find_library() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  const fs::path above = self.parent_path().parent_path();
  for (const fs::path& place :
       {above / LIBRARY_FROM_PREFIX / kLibrary, above / "plugin" / kLibrary}) {
    if (fs::exists(place, error)) return fs::canonical(place, error).string();
  }
  return "";
}

/// A file that the ranks of this machine can append to.
class StatsFile {
 public:
  explicit StatsFile(const std::string& wanted) : path_(wanted) {
    if (!path_.empty()) return;
    std::string name = (fs::temp_directory_path() / "railyard-stats-XXXXXX").string();
    const int fd = ::mkstemp(name.data());
    if (fd < 0) return;
    ::close(fd);
    path_ = name;
    own_ = true;
  }
  StatsFile(const StatsFile&) = delete;
  StatsFile& operator=(const StatsFile&) = delete;
  ~StatsFile() {
    if (own_) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  /// Where what this run appends begins.
  std::streamoff end() const {
    std::ifstream file(path_, std::ios::ate);
    return file ? static_cast<std::streamoff>(file.tellg()) : 0;
  }

 private:
  std::string path_;
  bool own_ = false;
};

void set(const char* name, const std::string& value) {
  if (!value.empty()) ::setenv(name, value.c_str(), 1);
}

void switch_on(const std::string& library, const RunOptions& options, const std::string& stats) {
  const char* const others = ::getenv("LD_PRELOAD");
  set("LD_PRELOAD", others != nullptr && *others != '\0' ? library + ":" + others : library);
  set("RAILYARD_TRANSPORT", options.transport);
  set("RAILYARD_COMMS", options.comms);
  set("RAILYARD_STATS", stats);
}

pid_t child = 0;
void pass_on(int signal) {
  if (child > 0) ::kill(child, signal);
}

[[noreturn]] void become(const std::vector<std::string>& program) {
  std::vector<char*> argv;
  for (const std::string& argument : program) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::dprintf(STDERR_FILENO, "railyard: cannot run %s: %s\n", argv[0], ::strerror(errno));
  ::_exit(kCannotStart);
}

/// Negative: it could not be started.
int run_and_wait(const std::string& library, const RunOptions& options, const std::string& stats) {
  sigset_t passed, before;
  ::sigemptyset(&passed);
  for (int signal : kPassedOn) ::sigaddset(&passed, signal);
  ::sigprocmask(SIG_BLOCK, &passed, &before);  // none gets lost before there is a child
  ::fflush(nullptr);
  child = ::fork();
  if (child < 0) return -1;
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    switch_on(library, options, stats);
    become(options.program);
  }
  struct sigaction action = {};
  action.sa_handler = pass_on;
  action.sa_flags = SA_RESTART;
  for (int signal : kPassedOn) ::sigaction(signal, &action, nullptr);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  child = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// False: the summary could not be written.
bool tell(const RunOptions& options, const Summary& summary) {
  if (options.json.empty()) {
    if (!options.quiet) ::fprintf(stderr, "railyard: %s", summary.text().c_str());
    return true;
  }
  std::ofstream file(options.json);
  file << summary.to_json().dump(2) << '\n';
  return static_cast<bool>(file.flush());
}

}  // namespace

CLI::App* add_run(CLI::App& app, RunOptions* options) {
  CLI::App* const run = app.add_subcommand("run", "Run a program with railyard switched on");
  run->footer(
      "  railyard run [OPTIONS] -- PROGRAM [ARGUMENTS]\n\n"
      "Sets LD_PRELOAD and the RAILYARD_* variables named by options for the program and all it "
      "starts.\nAt the end it says what railyard carried on this machine and what it left to NCCL. "
      "The exit status\nis the program's.");
  run->add_option("--transport", options->transport, "RAILYARD_TRANSPORT: auto, verbs or tcp")
      ->check(CLI::IsMember({"auto", "verbs", "tcp"}));
  run->add_option("--comms", options->comms, "RAILYARD_COMMS: auto, all or off")
      ->check(CLI::IsMember({"auto", "all", "off"}));
  run->add_option("--stats", options->stats,
                  "RAILYARD_STATS: keep the statistics there (appended to)");
  run->add_option("--json", options->json, "Write the summary there, not to stderr");
  run->add_option("--library", options->library, "librailyard.so to use")->check(CLI::ExistingFile);
  run->add_flag("--quiet", options->quiet, "No summary on stderr");
  return run;
}

int run(const RunOptions& options) {
  if (options.program.empty()) {
    return fail(kUsage, "no program given: put it and its arguments after --");
  }
  std::error_code error;
  const std::string library =
      options.library.empty() ? find_library() : fs::canonical(options.library, error).string();
  if (library.empty()) {
    return fail(kUsage, std::string(kLibrary) +
                            " is not where it was installed with this command; "
                            "say where it is with --library");
  }
  const StatsFile stats(options.stats);
  if (stats.path().empty()) {
    return fail(kUsage, "cannot make a file for the statistics in " +
                            fs::temp_directory_path(error).string() + "; name one with --stats");
  }
  if (stats.path().find('%') != std::string::npos) {
    return fail(kUsage, "--stats takes one file, without %: " + stats.path());
  }
  const std::streamoff begin = stats.end();
  const int status = run_and_wait(library, options, fs::absolute(stats.path(), error).string());
  if (status < 0) return fail(kCannotStart, std::string("cannot fork: ") + ::strerror(errno));
  Summary summary;
  std::ifstream lines(stats.path());
  if (lines.seekg(begin)) summary.add(lines);
  if (tell(options, summary)) return status;
  fail(1, "cannot write the summary to " + options.json);
  return status != 0 ? status : 1;
}

}  // namespace railyard::command
