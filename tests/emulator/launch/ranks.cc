// SPDX-License-Identifier: Apache-2.0
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "tagged_output.h"

namespace railyard::emulator {
namespace {

using Clock = std::chrono::steady_clock;
/// Between asking ranks to stop and killing them.
constexpr auto kGrace = std::chrono::seconds(2);
constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

/// In the child: becomes the program, or says why not.
[[noreturn]] void become(const RankProgram& program, pid_t launcher, const sigset_t& mask, int out,
                         int err) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(128 + SIGKILL);  // it died before we asked to be told
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (out >= 0) ::dup2(out, STDOUT_FILENO);
  if (err >= 0) ::dup2(err, STDERR_FILENO);
  if (program.network >= 0 && ::setns(program.network, CLONE_NEWNET) != 0) {
    ::dprintf(STDERR_FILENO, "emulate: cannot enter the network of node %d: %s\n", program.node,
              ::strerror(errno));
    ::_exit(kCannotStart);
  }
  std::vector<char*> argv = pointers(program.argv);
  std::vector<char*> environment = pointers(program.environment);
  ::execvpe(argv[0], argv.data(), environment.data());
  ::dprintf(STDERR_FILENO, "emulate: cannot run %s: %s\n", argv[0], ::strerror(errno));
  ::_exit(kCannotStart);
}

class Job {
 public:
  explicit Job(const JobOptions& options) : options_(options) {}
  int run(const std::vector<RankProgram>& programs);

 private:
  struct Pipes {
    int out[2] = {-1, -1};
    int err[2] = {-1, -1};
  };
  bool open_signals();
  bool start(const RankProgram& program);
  bool pipe_output(int rank, Pipes* pipes);
  int wait_ms() const;
  void poll_once();
  void handle_signals();
  void reap();
  void stop(int status);
  void signal_all(int signal);
  void finish();

  const JobOptions options_;
  sigset_t original_mask_{};
  int signals_ = -1;
  std::map<pid_t, const RankProgram*> running_;
  std::vector<pid_t> groups_;
  std::vector<TaggedOutput> outputs_;
  std::optional<int> status_;  ///< decided: the job is being stopped
  std::optional<Clock::time_point> deadline_;
  std::optional<Clock::time_point> kill_at_;
};

bool Job::open_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  for (int signal : kPassedOn) ::sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, &original_mask_);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0) ::perror("emulate: signalfd");
  return signals_ >= 0;
}

bool Job::pipe_output(int rank, Pipes* pipes) {
  if (::pipe2(pipes->out, O_CLOEXEC) != 0) return false;
  outputs_.emplace_back(rank, pipes->out[0], STDOUT_FILENO);
  if (::pipe2(pipes->err, O_CLOEXEC) != 0) return false;
  outputs_.emplace_back(rank, pipes->err[0], STDERR_FILENO);
  return true;
}

bool Job::start(const RankProgram& program) {
  Pipes pipes;
  if (options_.tag_output && !pipe_output(program.rank, &pipes)) {
    ::perror("emulate: pipe");
    return false;
  }
  pid_t launcher = ::getpid();
  pid_t pid = ::fork();
  if (pid == 0) become(program, launcher, original_mask_, pipes.out[1], pipes.err[1]);
  if (pipes.out[1] >= 0) ::close(pipes.out[1]);
  if (pipes.err[1] >= 0) ::close(pipes.err[1]);
  if (pid < 0) {
    ::perror("emulate: fork");
    return false;
  }
  ::setpgid(pid, pid);  // the child does the same; whoever is first
  running_[pid] = &program;
  groups_.push_back(pid);
  return true;
}

int Job::wait_ms() const {
  std::optional<Clock::time_point> next = kill_at_ ? kill_at_ : status_ ? std::nullopt : deadline_;
  if (!next) return -1;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

void Job::poll_once() {
  std::vector<pollfd> fds{{signals_, POLLIN, 0}};
  for (const TaggedOutput& output : outputs_) fds.push_back({output.source(), POLLIN, 0});
  ::poll(fds.data(), fds.size(), wait_ms());
  std::vector<TaggedOutput> open;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (fds[i + 1].revents == 0 || outputs_[i].pump()) open.push_back(std::move(outputs_[i]));
  }
  std::swap(outputs_, open);
  handle_signals();
  reap();
}

void Job::handle_signals() {
  signalfd_siginfo info;
  while (::read(signals_, &info, sizeof info) == sizeof info) {
    auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    signal_all(signal);
    if (signal == SIGUSR1 || signal == SIGUSR2 || kill_at_) continue;
    // The ranks may finish in their own way; those that do not are killed.
    status_ = 128 + signal;
    kill_at_ = Clock::now() + kGrace;
  }
}

void Job::reap() {
  int raw;
  for (pid_t pid; (pid = ::waitpid(-1, &raw, WNOHANG)) > 0;) {
    auto found = running_.find(pid);
    if (found == running_.end()) continue;  // left behind by a rank
    const RankProgram& program = *found->second;
    running_.erase(found);
    int status = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
    if (status == 0 || status_) continue;
    if (WIFSIGNALED(raw)) {
      ::fprintf(stderr, "emulate: rank %d (node %d) was killed by signal %d (%s)\n", program.rank,
                program.node, WTERMSIG(raw), ::strsignal(WTERMSIG(raw)));
    } else {
      ::fprintf(stderr, "emulate: rank %d (node %d) exited with status %d\n", program.rank,
                program.node, status);
    }
    stop(status);
  }
}

void Job::stop(int status) {
  status_ = status;
  signal_all(SIGTERM);
  kill_at_ = Clock::now() + kGrace;
}

void Job::signal_all(int signal) {
  for (const auto& [pid, program] : running_) ::kill(-pid, signal);
}

void Job::finish() {
  for (pid_t group : groups_) ::kill(-group, SIGKILL);
  for (TaggedOutput& output : outputs_) output.pump();
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  outputs_.clear();
  ::close(signals_);
}

int Job::run(const std::vector<RankProgram>& programs) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (!open_signals()) return kCannotStart;
  ::fflush(nullptr);
  for (const RankProgram& program : programs) {
    if (start(program)) continue;
    stop(kCannotStart);
    break;
  }
  if (options_.timeout_s > 0) {
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(options_.timeout_s));
  }
  while (!running_.empty()) {
    poll_once();
    if (!status_ && deadline_ && Clock::now() >= *deadline_) {
      std::string waiting;
      for (const auto& [pid, program] : running_) waiting += " " + std::to_string(program->rank);
      ::fprintf(stderr, "emulate: time is up after %g s; still running: rank%s\n",
                options_.timeout_s, waiting.c_str());
      stop(kTimedOut);
    }
    if (kill_at_ && Clock::now() >= *kill_at_) {
      signal_all(SIGKILL);
      kill_at_ = Clock::now() + kGrace;
    }
  }
  finish();
  return status_.value_or(0);
}

}  // namespace

int run_job(const std::vector<RankProgram>& programs, const JobOptions& options) {
  return Job(options).run(programs);
}

}  // namespace railyard::emulator
