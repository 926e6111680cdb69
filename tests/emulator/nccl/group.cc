// SPDX-License-Identifier: Apache-2.0
#include "group.h"

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

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
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

/// Whether the group goes on in a thread: as its jobs want, which must agree, else as the
/// communicator that came last.
ncclResult_t choose_mode(const Group& ended, bool* background) {
  *background = !ended.batches.empty() && !ended.batches.back().communicator->blocking();
  if (ended.jobs.empty()) return ncclSuccess;
  const auto waits = [](const Job& job) { return !job.background || job.communicator->blocking(); };
  const auto count = std::count_if(ended.jobs.begin(), ended.jobs.end(), waits);
  *background = count == 0;
  if (count == 0 || count == static_cast<ptrdiff_t>(ended.jobs.size())) return ncclSuccess;
  return fail(ncclInvalidArgument,
              "blocking and non-blocking communicators cannot be made or ended in one group");
}

void run_in_background(Group ended) {
  std::vector<std::shared_ptr<Communicator>> concerned;
  for (const Job& job : ended.jobs) concerned.push_back(job.communicator);
  for (const Batch& batch : ended.batches) concerned.push_back(batch.communicator);
  for (const auto& communicator : concerned) communicator->begin_async();
  std::thread([ended = std::move(ended), concerned = std::move(concerned)] {
    const ncclResult_t result = run_group(ended);
    for (const auto& communicator : concerned) communicator->end_async(result);
  }).detach();
}

/// A rough time: NCCL's own is one, too, and is for collectives alone.
void simulate(const std::vector<Batch>& batches, ncclSimInfo_t* simulation) {
  constexpr float kStartUs = 10;
  constexpr float kBytesPerUs = 1e4F;
  float total = 0;
  for (const Batch& batch : batches) {
    for (const Task& task : batch.collectives) {
      total += kStartUs + static_cast<float>(task.count * type_size(task.type)) / kBytesPerUs;
    }
  }
  simulation->estimatedTime = total;
}

}  // namespace

void start_group() { ++group.depth; }

bool in_group() { return group.depth > 0; }

void note_result(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress) group.error = result;
}

ncclResult_t end_group(ncclSimInfo_t* simulation) {
  if (group.depth == 0) {
    return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  if (simulation != nullptr && simulation->magic != kSimulationMagic) {
    return fail(ncclInvalidArgument, "ncclGroupSimulateEnd: begin with NCCL_SIM_INFO_INITIALIZER");
  }
  if (group.depth > 1) {
    --group.depth;
    return ncclSuccess;
  }
  Group ended = std::exchange(group, Group{});
  if (ended.error != ncclSuccess) {
    for (const Job& job : ended.jobs) job.cancel();
    return ended.error;
  }
  bool background = false;
  ncclResult_t result = choose_mode(ended, &background);
  if (result != ncclSuccess) {
    for (const Job& job : ended.jobs) job.cancel();
    return result;
  }
  if (simulation != nullptr) {
    result = run_jobs(ended.jobs);
    if (result == ncclSuccess) simulate(ended.batches, simulation);
    return result;
  }
  if (!background) return run_group(ended);
  run_in_background(std::move(ended));
  return ncclInProgress;
}

void add_job(Job job) { group.jobs.push_back(std::move(job)); }

void add_tasks(const std::shared_ptr<Communicator>& communicator, CUstream stream,
               const std::vector<Task>& collectives, const std::vector<Task>& points) {
  auto batch = std::find_if(group.batches.begin(), group.batches.end(),
                            [&](const Batch& b) { return b.communicator == communicator; });
  if (batch == group.batches.end()) {
    batch = group.batches.insert(group.batches.end(), Batch{communicator, {}, {}, {}});
  }
  if (std::find(batch->streams.begin(), batch->streams.end(), stream) == batch->streams.end()) {
    batch->streams.push_back(stream);
  }
  batch->collectives.insert(batch->collectives.end(), collectives.begin(), collectives.end());
  batch->points.insert(batch->points.end(), points.begin(), points.end());
}

ncclComm_t add_handle(std::shared_ptr<Communicator> communicator) {
  std::lock_guard lock(handles_mutex);
  auto* handle = new ncclComm;
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
