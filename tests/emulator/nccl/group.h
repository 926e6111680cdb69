// SPDX-License-Identifier: Apache-2.0
//
// Groups: what a thread asks for between ncclGroupStart and ncclGroupEnd is done at the outermost
// end. First the jobs (creation, finalization, destruction of communicators), at once if there are
// several, those of one communicator in order; then the launches. If any call in the group
// failed, nothing is done and the end returns that call's result; handles that were given out stay.
//
// The group of non-blocking communicators is done by a thread: the end returns ncclInProgress, and
// the communicators are in that state until it is done. Jobs of one group must agree on it, except
// that whatever ends a communicator is always done before the end returns, and all else with it.
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
  bool ends = false;  ///< destroys or aborts it
};

void start_group();
/// `simulation` not null: it is filled and, if the group blocks, nothing is launched.
ncclResult_t end_group(ncclSimInfo_t* simulation);
/// ncclInvalidArgument where the job's communicator does not block and others do, or the reverse.
/// Outside of groups the job is done at once.
ncclResult_t add_job(Job job);
/// ncclInvalidUsage if this stream and others of the communicator are not in one capture.
/// REQUIRES: start_group().
ncclResult_t add_tasks(const std::shared_ptr<Communicator>& communicator, CUstream stream,
                       const std::vector<Task>& collectives, const std::vector<Task>& points);
/// Fails the group if there is one and this is a failure.
void note_result(ncclResult_t result);

/// Runs one API call as a group of its own within whatever group there is. Success may mean that
/// it goes on in a thread.
template <typename F>
ncclResult_t grouped(F call) {
  start_group();
  ncclResult_t result = call();
  note_result(result);
  ncclResult_t end = end_group(nullptr);
  return end == ncclSuccess || end == ncclInProgress ? result : end;
}

/// grouped(), for calls that tell the state of a non-blocking communicator and leave their failure
/// in it.
template <typename F>
ncclResult_t grouped_on(const std::shared_ptr<Communicator>& communicator, F call) {
  ncclResult_t result = ncclSuccess;
  ncclResult_t all = grouped([&] {
    result = call();
    if (result != ncclSuccess && !communicator->blocking()) communicator->set_state(result);
    return result;
  });
  if (all != result || communicator->blocking()) return all;
  return communicator->ask_state(&result) == ncclSuccess ? result : all;
}

ncclComm_t add_handle(std::shared_ptr<Communicator> communicator);
/// Null for what is no communicator.
std::shared_ptr<Communicator> find_handle(ncclComm_t handle);
void remove_handle(ncclComm_t handle);

}  // namespace railyard::emulator
