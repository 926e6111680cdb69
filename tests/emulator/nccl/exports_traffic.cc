// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: groups, messages, collectives, reduction operations.
#include <string.h>

#include <memory>
#include <utility>
#include <vector>

#include "communicator.h"
#include "device.h"
#include "environment.h"
#include "exports.h"
#include "group.h"
#include "reduce.h"
#include "result.h"
#include "version.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

namespace {

constexpr int kFirstWithFloat8 = 22403;

/// What every call on a communicator has.
struct Call {
  const char* function;
  ncclComm_t comm;
  cudaStream_t stream;
  uint64_t count;
  ncclDataType_t type;
  int peer = 0;  ///< or root
  ncclRedOp_t op = ncclSum;
  bool blocks = false;  ///< one block of `count` elements for each rank
};

ncclResult_t check_call(const Call& call, const Communicator& c, Operation* operation) {
  ncclResult_t result = c.check_usable();
  if (result != ncclSuccess) return result;
  if (call.peer < 0 || call.peer >= c.ranks()) {
    return fail(ncclInvalidArgument, "%s: rank %d is not among the %d of the communicator",
                call.function, call.peer, c.ranks());
  }
  uint64_t bytes = type_size(call.type);
  if (bytes == 0 || (call.type > ncclBfloat16 && nccl_version() < kFirstWithFloat8)) {
    return fail(ncclInvalidArgument, "%s: %d is no data type", call.function,
                static_cast<int>(call.type));
  }
  uint64_t parts = call.blocks ? static_cast<uint64_t>(c.ranks()) : 1;
  if (__builtin_mul_overflow(bytes, call.count, &bytes) ||
      __builtin_mul_overflow(bytes, parts, &bytes) || bytes > PTRDIFF_MAX) {
    return fail(ncclInvalidArgument, "%s: a count of %llu is too large", call.function,
                static_cast<unsigned long long>(call.count));
  }
  return c.find_operation(call.op, call.type, operation);
}

ncclResult_t check_memory(const Call& call, const Communicator& c,
                          const std::vector<const void*>& memory) {
  static const bool checks = number_variable("NCCL_CHECK_POINTERS") == 1;
  if (!checks) return ncclSuccess;
  for (const void* address : memory) {
    if (c.may_use(address)) continue;
    return fail(ncclInvalidArgument, "%s: %p is no memory that device %d can use", call.function,
                address, c.device());
  }
  return ncclSuccess;
}

ncclResult_t unknown_communicator(const char* function) {
  ncclResult_t result =
      fail(ncclInvalidArgument, "%s: the communicator is null or not a live one", function);
  note_result(result);
  return result;
}

/// What a rank does that is alone: at once, whatever the group.
ncclResult_t launch_alone(const Call& call, Batch batch) {
  std::shared_ptr<Communicator> communicator = batch.communicator;
  ncclResult_t result = communicator->add_stream(call.stream, &batch);
  return result == ncclSuccess ? communicator->launch(std::move(batch)) : result;
}

ncclResult_t collective(const Call& call, Task::Kind kind, const void* send, void* receive) {
  std::shared_ptr<Communicator> communicator = find_handle(call.comm);
  if (!communicator) return unknown_communicator(call.function);
  return grouped_on(communicator, [&]() -> ncclResult_t {
    Operation operation;
    ncclResult_t result = check_call(call, *communicator, &operation);
    const bool is_root = communicator->rank() == call.peer;
    std::vector<const void*> memory;
    if (kind != Task::Kind::kBroadcast || is_root) memory.push_back(send);
    if (kind != Task::Kind::kReduce || is_root) memory.push_back(receive);
    if (result == ncclSuccess) result = check_memory(call, *communicator, memory);
    if (result != ncclSuccess || call.count == 0) return result;
    Task task{kind, send, receive, call.count, call.type, call.peer, operation};
    if (communicator->ranks() > 1) return add_tasks(communicator, call.stream, {task}, {});
    return launch_alone(call, Batch{communicator, {}, 0, {task}, {}});
  });
}

/// A message, or a collective that is made of those that `build(communicator, tasks)` adds.
/// `memory` is all that is looked at.
template <typename F>
ncclResult_t messages(const Call& call, bool is_collective, const std::vector<const void*>& memory,
                      F build) {
  std::shared_ptr<Communicator> communicator = find_handle(call.comm);
  if (!communicator) return unknown_communicator(call.function);
  return grouped_on(communicator, [&]() -> ncclResult_t {
    Operation operation;
    ncclResult_t result = check_call(call, *communicator, &operation);
    if (result == ncclSuccess && (is_collective || call.count > 0)) {
      result = check_memory(call, *communicator, memory);
    }
    if (result != ncclSuccess || (is_collective && call.count == 0)) return result;
    std::vector<Task> tasks;
    build(*communicator, &tasks);
    if (is_collective && communicator->ranks() == 1) {
      return launch_alone(call, Batch{communicator, {}, 0, {}, std::move(tasks)});
    }
    return tasks.empty() ? ncclSuccess : add_tasks(communicator, call.stream, {}, tasks);
  });
}

const void* block(const void* base, const Call& call, int rank) {
  return static_cast<const char*>(base) +
         static_cast<uint64_t>(rank) * call.count * type_size(call.type);
}

void* block(void* base, const Call& call, int rank) {
  return const_cast<void*>(block(static_cast<const void*>(base), call, rank));
}

Task send_task(const Call& call, const void* data, int peer) {
  return Task{Task::Kind::kSend, data, nullptr, call.count, call.type, peer, {}};
}

Task receive_task(const Call& call, void* data, int peer) {
  return Task{Task::Kind::kReceive, nullptr, data, call.count, call.type, peer, {}};
}

}  // namespace

extern "C" {

ncclResult_t pncclGroupStart() {
  start_group();
  return ncclSuccess;
}

ncclResult_t pncclGroupEnd() { return end_group(nullptr); }

/// Without a struct to fill it is an ordinary end, as in the real one.
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) { return end_group(simInfo); }

ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream) {
  Call call{"ncclSend", comm, stream, count, datatype, peer};
  return messages(call, false, {sendbuff}, [&](const Communicator&, std::vector<Task>* tasks) {
    tasks->push_back(send_task(call, sendbuff, peer));
  });
}

ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream) {
  Call call{"ncclRecv", comm, stream, count, datatype, peer};
  return messages(call, false, {recvbuff}, [&](const Communicator&, std::vector<Task>* tasks) {
    tasks->push_back(receive_task(call, recvbuff, peer));
  });
}

ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  Call call{"ncclAlltoAll", comm, stream, count, datatype, 0, ncclSum, true};
  return messages(call, true, {sendbuff, recvbuff},
                  [&](const Communicator& c, std::vector<Task>* tasks) {
                    for (int peer = 0; peer < c.ranks(); ++peer) {
                      tasks->push_back(send_task(call, block(sendbuff, call, peer), peer));
                      tasks->push_back(receive_task(call, block(recvbuff, call, peer), peer));
                    }
                  });
}

ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  Call call{"ncclGather", comm, stream, count, datatype, root, ncclSum, true};
  return messages(call, true, {sendbuff, recvbuff},
                  [&](const Communicator& c, std::vector<Task>* tasks) {
                    tasks->push_back(send_task(call, sendbuff, root));
                    for (int peer = 0; peer < c.ranks() && c.rank() == root; ++peer) {
                      tasks->push_back(receive_task(call, block(recvbuff, call, peer), peer));
                    }
                  });
}

ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  Call call{"ncclScatter", comm, stream, count, datatype, root, ncclSum, true};
  return messages(call, true, {sendbuff, recvbuff},
                  [&](const Communicator& c, std::vector<Task>* tasks) {
                    for (int peer = 0; peer < c.ranks() && c.rank() == root; ++peer) {
                      tasks->push_back(send_task(call, block(sendbuff, call, peer), peer));
                    }
                    tasks->push_back(receive_task(call, recvbuff, root));
                  });
}

ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                            ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                            cudaStream_t stream) {
  return collective({"ncclAllReduce", comm, stream, count, datatype, 0, op}, Task::Kind::kAllReduce,
                    sendbuff, recvbuff);
}

ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  return collective({"ncclReduce", comm, stream, count, datatype, root, op}, Task::Kind::kReduce,
                    sendbuff, recvbuff);
}

ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream) {
  return collective({"ncclReduceScatter", comm, stream, recvcount, datatype, 0, op, true},
                    Task::Kind::kReduceScatter, sendbuff, recvbuff);
}

ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return collective({"ncclAllGather", comm, stream, sendcount, datatype, 0, ncclSum, true},
                    Task::Kind::kAllGather, sendbuff, recvbuff);
}

ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                            ncclDataType_t datatype, int root, ncclComm_t comm,
                            cudaStream_t stream) {
  return collective({"ncclBroadcast", comm, stream, count, datatype, root}, Task::Kind::kBroadcast,
                    sendbuff, recvbuff);
}

ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);  // as the real one does
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm) {
  constexpr const char* kName = "ncclRedOpCreatePreMulSum";
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (!communicator) {
    return fail(ncclInvalidArgument, "%s: the communicator is null or not a live one", kName);
  }
  Operation operation;
  ncclResult_t result = check_call({kName, comm, nullptr, 1, datatype}, *communicator, &operation);
  if (result != ncclSuccess) return result;
  if (op == nullptr || scalar == nullptr) {
    return fail(ncclInvalidArgument, "%s: op and scalar must not be null", kName);
  }
  operation.scaled = true;
  if (residence == ncclScalarHostImmediate) {
    ::memcpy(operation.value.data(), scalar, type_size(datatype));
  } else if (residence == ncclScalarDevice) {
    operation.scalar = scalar;
  } else {
    return fail(ncclInvalidArgument, "%s: %d is no residence", kName, static_cast<int>(residence));
  }
  return communicator->add_operation(operation, datatype, op);
}

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  if (communicator) return communicator->remove_operation(op);
  return fail(ncclInvalidArgument, "ncclRedOpDestroy: the communicator is null or not a live one");
}

}  // extern "C"

RY_WEAK_NAME(ncclGroupStart);
RY_WEAK_NAME(ncclGroupEnd);
RY_WEAK_NAME(ncclGroupSimulateEnd);
RY_WEAK_NAME(ncclSend);
RY_WEAK_NAME(ncclRecv);
RY_WEAK_NAME(ncclAlltoAll);
RY_WEAK_NAME(ncclGather);
RY_WEAK_NAME(ncclScatter);
RY_WEAK_NAME(ncclAllReduce);
RY_WEAK_NAME(ncclReduce);
RY_WEAK_NAME(ncclReduceScatter);
RY_WEAK_NAME(ncclAllGather);
RY_WEAK_NAME(ncclBroadcast);
RY_WEAK_NAME(ncclBcast);
RY_WEAK_NAME(ncclRedOpCreatePreMulSum);
RY_WEAK_NAME(ncclRedOpDestroy);
