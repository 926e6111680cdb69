// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "rendezvous.h"

namespace integration {
namespace {

int number(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) fail(std::string(variable) + " is not set; start through the launcher");
  return std::atoi(text);
}

int value(int src, int dst, int message, size_t element) {
  return src * 1000003 + dst * 10007 + message * 101 + static_cast<int>(element);
}

}  // namespace

void fail(const std::string& what) {
  std::fprintf(stderr, "interception: rank %s: %s\n", std::getenv("RANK"), what.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

void require(cudaError_t result, const char* call) {
  if (result != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(result));
}

void require(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  fail(std::string(call) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

void require(bool condition, const char* what) {
  if (!condition) fail(std::string("not true: ") + what);
}

std::vector<ncclUniqueId> make_ids(size_t count) {
  std::vector<ncclUniqueId> ids(count);
  for (ncclUniqueId& id : ids) {
    if (number("RANK") == 0) REQUIRE(ncclGetUniqueId(&id));
  }
  return ids;
}

Job::Job(size_t count) : Job(make_ids(count)) {}

Job::Job(std::vector<ncclUniqueId> made)
    : rank(number("RANK")),
      ranks(number("WORLD_SIZE")),
      device(number("LOCAL_RANK")),
      ids(std::move(made)) {
  REQUIRE(cudaSetDevice(device));
  property::share_between_processes(rank, ranks, ids);
}

ncclComm_t Job::create(size_t id) const {
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRank(&comm, ranks, ids.at(id), rank));
  return comm;
}

cudaStream_t Job::stream() const {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

Buffer::Buffer(size_t elements) : elements_(elements) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, (elements + 1) * sizeof(int)));
  data_ = static_cast<int*>(memory);
  const std::vector<int> nothing(elements + 1, -1);
  REQUIRE(cudaMemcpy(data_, nothing.data(), nothing.size() * sizeof(int), cudaMemcpyHostToDevice));
}

Buffer::~Buffer() { cudaFree(data_); }

void Buffer::set(size_t offset, size_t elements, int src, int dst, int message) const {
  std::vector<int> contents(elements);
  for (size_t i = 0; i < elements; ++i) contents[i] = value(src, dst, message, i);
  REQUIRE(
      cudaMemcpy(data_ + offset, contents.data(), elements * sizeof(int), cudaMemcpyHostToDevice));
}

void Buffer::expect(size_t offset, size_t elements, int src, int dst, int message) const {
  std::vector<int> contents(elements + 1);
  REQUIRE(cudaMemcpy(contents.data(), data_ + offset, contents.size() * sizeof(int),
                     cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < elements; ++i) {
    if (contents[i] == value(src, dst, message, i)) continue;
    fail("message " + std::to_string(message) + " from " + std::to_string(src) + ": element " +
         std::to_string(i) + " of " + std::to_string(elements) + " is wrong");
  }
  if (offset + elements == elements_ && contents[elements] != -1) fail("written past the end");
}

void Buffer::expect_value(size_t offset, size_t elements, int wanted) const {
  std::vector<int> contents(elements);
  REQUIRE(
      cudaMemcpy(contents.data(), data_ + offset, elements * sizeof(int), cudaMemcpyDeviceToHost));
  for (const int got : contents) {
    if (got != wanted) fail(std::to_string(got) + " instead of " + std::to_string(wanted));
  }
}

void settle(ncclComm_t comm, ncclResult_t result) {
  REQUIRE(result == ncclSuccess || result == ncclInProgress);
  // A call may return success and leave it to the state that it is under way.
  REQUIRE(ncclCommGetAsyncError(comm, &result));
  while (result == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // programs can only ask
    REQUIRE(ncclCommGetAsyncError(comm, &result));
  }
  REQUIRE(result);
}

void exchange_all(ncclComm_t comm, cudaStream_t stream, size_t elements, int message) {
  int rank = 0, ranks = 0;
  REQUIRE(ncclCommUserRank(comm, &rank));
  REQUIRE(ncclCommCount(comm, &ranks));
  const auto size = static_cast<size_t>(ranks);
  const Buffer from(elements * size), to(elements * size);
  for (int peer = 0; peer < ranks; ++peer) {
    from.set(static_cast<size_t>(peer) * elements, elements, rank, peer, message);
  }
  settle(comm, ncclAlltoAll(from.data(), to.data(), elements, ncclInt32, comm, stream));
  REQUIRE(cudaStreamSynchronize(stream));
  for (int peer = 0; peer < ranks; ++peer) {
    to.expect(static_cast<size_t>(peer) * elements, elements, peer, rank, message);
  }
}

ncclResult_t wait_for_error(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess || state == ncclInProgress) {
    // Programs can only ask; the launcher's time limit ends a wait in vain.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE(ncclCommGetAsyncError(comm, &state));
  }
  return state;
}

}  // namespace integration
