// SPDX-License-Identifier: Apache-2.0
#include "group.h"

#include <string.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "reduce.h"
#include "result.h"

/// What a handle points at. Only its address means anything.
struct ncclComm {
  unsigned unused = 0;
};

namespace railyard::emulator {
namespace {

constexpr unsigned kSimulationMagic = 0x74685283;

enum class Mode { kUnknown, kBlocking, kBackground };

Mode mode_of(const Communicator& communicator) {
  return communicator.blocking() ? Mode::kBlocking : Mode::kBackground;
}

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  Mode mode = Mode::kUnknown;
  std::vector<Job> jobs;
  std::vector<Batch> batches;
};

thread_local Group group;

std::mutex handles_mutex;
/// Never destroyed: streams may still use communicators while the process exits.
auto& handles = *new std::map<ncclComm_t, std::shared_ptr<Communicator>>;

/// Runs the jobs, those of each communicator one after the other.
ncclResult_t run_jobs(const std::vector<Job>& jobs) {
  std::vector<std::vector<const Job*>> lines;
  for (const Job& job : jobs) {
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](auto& l) { return l.front()->communicator == job.communicator; });
    if (line == lines.end()) line = lines.insert(lines.end(), std::vector<const Job*>{});
    line->push_back(&job);
  }
  std::vector<ncclResult_t> results(lines.size(), ncclSuccess);
  auto run_line = [&](size_t i) {
    for (const Job* job : lines[i]) {
      ncclResult_t result = job->run();
      if (result != ncclSuccess) results[i] = result;
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < lines.size(); ++i) threads.emplace_back(run_line, i);
  if (!lines.empty()) run_line(0);
  for (std::thread& thread : threads) thread.join();
  auto failed =
      std::find_if(results.begin(), results.end(), [](auto r) { return r != ncclSuccess; });
  return failed == results.end() ? ncclSuccess : *failed;
}

/// Ranks of one communicator together, communicators by hash.
void sort_batches(std::vector<Batch>* batches) {
  std::stable_sort(batches->begin(), batches->end(), [](const Batch& a, const Batch& b) {
    return a.communicator->hash() < b.communicator->hash();
  });
}

ncclResult_t run_batches(std::vector<Batch> batches) {
  for (const Batch& batch : batches) {
    ncclResult_t result = batch.communicator->check_batch(batch);
    if (result != ncclSuccess) return result;
  }
  sort_batches(&batches);
  for (Batch& batch : batches) {
    std::shared_ptr<Communicator> communicator = batch.communicator;
    ncclResult_t result = communicator->launch(std::move(batch));
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t run_group(const Group& ended) {
  ncclResult_t result = run_jobs(ended.jobs);
  return result == ncclSuccess ? run_batches(ended.batches) : result;
}

using Concerned = std::vector<std::shared_ptr<Communicator>>;

/// Those whose state tells how the group fares.
Concerned unblocked(const Group& ended) {
  Concerned all;
  for (const Job& job : ended.jobs) {
    if (!job.ends) all.push_back(job.communicator);
  }
  for (const Batch& batch : ended.batches) all.push_back(batch.communicator);
  std::erase_if(all, [](const auto& communicator) { return communicator->blocking(); });
  return all;
}

void set_states(const Concerned& communicators, ncclResult_t state) {
  for (const auto& communicator : communicators) communicator->set_state(state);
}

void run_in_background(Group ended) {
  Concerned concerned = unblocked(ended);
  set_states(concerned, ncclInProgress);
  std::thread([ended = std::move(ended), concerned = std::move(concerned)] {
    set_states(concerned, run_group(ended));
  }).detach();
}

ncclResult_t run_and_wait(const Group& ended) {
  ncclResult_t result = run_group(ended);
  set_states(unblocked(ended), result);
  return result;
}

/// A rough time: NCCL's own is one, too, and is for collectives alone.
ncclResult_t simulate(const Group& ended, ncclSimInfo_t* simulation) {
  constexpr float kStartUs = 10;
  constexpr float kBytesPerUs = 1e4F;
  ncclResult_t result = run_jobs(ended.jobs);
  float total = 0;
  for (const Batch& batch : ended.batches) {
    if (result == ncclSuccess) result = batch.communicator->ask_tuner(batch);
    for (const Task& task : batch.collectives) {
      total += kStartUs + static_cast<float>(task.count * type_size(task.type)) / kBytesPerUs;
    }
  }
  if (result == ncclSuccess) simulation->estimatedTime = total;
  return result;
}

/// The caller's struct may be shorter or longer than ours.
ncclResult_t check_simulation(const ncclSimInfo_t* simulation) {
  ncclSimInfo_t known{};
  size_t size = 0;
  ::memcpy(&size, simulation, sizeof size);
  ::memcpy(&known, simulation, std::min(size, sizeof known));
  if (known.magic == kSimulationMagic) return ncclSuccess;
  return fail(ncclInvalidArgument, "ncclGroupSimulateEnd: begin with NCCL_SIM_INFO_INITIALIZER");
}

}  // namespace

void start_group() { ++group.depth; }

void note_result(ncclResult_t result) {
  if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress) group.error = result;
}

ncclResult_t end_group(ncclSimInfo_t* simulation) {
  if (group.depth == 0) {
    return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  if (--group.depth > 0) return ncclSuccess;
  Group ended = std::exchange(group, Group{});
  ncclResult_t result = ended.error;
  if (result == ncclSuccess && simulation != nullptr) result = check_simulation(simulation);
  if (result != ncclSuccess) {
    set_states(unblocked(ended), result);
    return result;
  }
  if (ended.jobs.empty() && ended.batches.empty()) return ncclSuccess;
  if (ended.mode == Mode::kBackground) {
    run_in_background(std::move(ended));
    return ncclInProgress;
  }
  return simulation != nullptr ? simulate(ended, simulation) : run_and_wait(ended);
}

ncclResult_t add_job(Job job) {
  if (group.depth == 0) return job.run();
  Mode mode = mode_of(*job.communicator);
  if (job.ends) {
    group.mode = Mode::kBlocking;
  } else if (group.mode == Mode::kUnknown) {
    group.mode = mode;
  } else if (group.mode != mode) {
    return fail(ncclInvalidArgument,
                "blocking and non-blocking communicators cannot be made or ended in one group");
  }
  group.jobs.push_back(std::move(job));
  return ncclSuccess;
}

ncclResult_t add_tasks(const std::shared_ptr<Communicator>& communicator, CUstream stream,
                       const std::vector<Task>& collectives, const std::vector<Task>& points) {
  auto batch = std::find_if(group.batches.begin(), group.batches.end(),
                            [&](const Batch& b) { return b.communicator == communicator; });
  if (batch == group.batches.end()) {
    batch = group.batches.insert(group.batches.end(), Batch{communicator, {}, 0, {}, {}});
  }
  group.mode = mode_of(*communicator);
  if (std::find(batch->streams.begin(), batch->streams.end(), stream) == batch->streams.end()) {
    ncclResult_t result = communicator->add_stream(stream, &*batch);
    if (result != ncclSuccess) return result;
  }
  batch->collectives.insert(batch->collectives.end(), collectives.begin(), collectives.end());
  batch->points.insert(batch->points.end(), points.begin(), points.end());
  return ncclSuccess;
}

ncclComm_t add_handle(std::shared_ptr<Communicator> communicator) {
  std::lock_guard lock(handles_mutex);
  auto* handle = new ncclComm;
  communicator->set_handle(handle);
  handles[handle] = std::move(communicator);
  return handle;
}

std::shared_ptr<Communicator> find_handle(ncclComm_t handle) {
  std::lock_guard lock(handles_mutex);
  auto found = handles.find(handle);
  return found == handles.end() ? nullptr : found->second;
}

void remove_handle(ncclComm_t handle) {
  std::shared_ptr<Communicator> last;  // outlives the lock
  std::lock_guard lock(handles_mutex);
  auto found = handles.find(handle);
  if (found == handles.end()) return;
  last = std::move(found->second);
  handles.erase(found);
  delete handle;
}

}  // namespace railyard::emulator
