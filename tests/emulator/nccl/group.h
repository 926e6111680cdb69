// SPDX-License-Identifier: Apache-2.0
//
// Groups: what a thread asks for between ncclGroupStart and ncclGroupEnd is done at the outermost
// end. First the jobs (creation, finalization, destruction of communicators), at once if there are
// several, those of one communicator in order; then the launches. If any call in the group
// failed, nothing is done and the end returns that call's result. With non-blocking communicators
// all of it is done by a thread, the end returns ncclInProgress, and so do the communicators until
// it is done.
//
// Handles of communicators live here, too. All functions are thread-safe; a group belongs to its
// thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <nccl.h>

#include "communicator.h"

namespace railyard::emulator {

struct Job {
  std::shared_ptr<Communicator> communicator;  ///< whose jobs are to stay in order
  std::function<ncclResult_t()> run;
  std::function<void()> cancel;
  bool background = true;  ///< with a non-blocking communicator; else before the end returns
};

void start_group();
/// `simulation` not null: nothing is launched and it is filled.
ncclResult_t end_group(ncclSimInfo_t* simulation);
/// Whether this thread is between start and end.
bool in_group();

/// REQUIRES: in_group().
void add_job(Job job);
void add_tasks(const std::shared_ptr<Communicator>& communicator, CUstream stream,
               const std::vector<Task>& collectives, const std::vector<Task>& points);

/// Runs one API call as a group of its own within whatever group there is.
template <typename F>
ncclResult_t grouped(F call);
void note_result(ncclResult_t result);

template <typename F>
ncclResult_t grouped(F call) {
  start_group();
  ncclResult_t result = call();
  note_result(result);
  ncclResult_t end = end_group(nullptr);
  return result != ncclSuccess ? result : end;
}

ncclComm_t add_handle(std::shared_ptr<Communicator> communicator);
/// Null for what is no communicator.
std::shared_ptr<Communicator> find_handle(ncclComm_t handle);
void remove_handle(ncclComm_t handle);

}  // namespace railyard::emulator
