// SPDX-License-Identifier: Apache-2.0
#include "trial.h"

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "random.h"

namespace conformance {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

void require(cudaError_t result) {
  if (result != cudaSuccess) fail(std::string("CUDA: ") + cudaGetErrorString(result));
}

std::byte content_byte(Content content, size_t position) {
  const auto word = [](int value) { return static_cast<uint64_t>(value); };
  const uint64_t key = property::hash({word(content.src), word(content.dst), word(content.number)});
  return static_cast<std::byte>(property::scramble(key + position));
}

}  // namespace

Trial::Trial(World& w, std::FILE* log)
    : world(w), rank(w.rank), ranks(w.ranks), device(w.device), log_(log) {
  require(cudaSetDevice(device));
}

Trial::~Trial() {
  while (!comms_.empty()) destroy(comms_.front());
  for (const cudaStream_t stream : streams_) require(cudaStreamDestroy(stream));
}

void Trial::note(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(log_, format, arguments);
  va_end(arguments);
  std::fputc('\n', log_);
}

ncclResult_t Trial::nccl(const char* call, ncclResult_t result) {
  std::string states;
  for (const ncclComm_t comm : comms_) {
    ncclResult_t state = ncclNumResults;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    states += " " + std::to_string(asked == ncclSuccess ? state : -asked);
  }
  note("%s -> %d;%s", call, static_cast<int>(result), states.c_str());
  return result;
}

cudaError_t Trial::cuda(const char* call, cudaError_t result) {
  note("%s -> %s", call, cudaGetErrorName(result));
  return result;
}

void Trial::check(bool holds, const char* what) { note("%s: %s", holds ? "right" : "WRONG", what); }

ncclResult_t Trial::accept(const char* call, ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) {
    note("%s -> accepted", call);
  } else {
    note("%s -> %d", call, static_cast<int>(result));
  }
  return result;
}

ncclResult_t Trial::settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  ncclResult_t asked = ncclSuccess;
  while (asked == ncclSuccess && state == ncclInProgress) {
    asked = ncclCommGetAsyncError(comm, &state);
    // Programs can only ask; the time limit of the case ends a wait in vain.
    if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  note("settled: %d, %d", static_cast<int>(asked), static_cast<int>(state));
  return state;
}

ncclResult_t Trial::await_error(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess || state == ncclInProgress) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // as above
  }
  note("asynchronous error: %d", static_cast<int>(state));
  return state;
}

bool Trial::lacks(const void* function, const char* name) {
  if (function != nullptr) return false;
  note("absent: %s", name);
  return true;
}

void Trial::watch(ncclComm_t comm) {
  if (comm != nullptr) comms_.push_back(comm);
}

void Trial::forget(ncclComm_t comm) { std::erase(comms_, comm); }

ncclComm_t Trial::comm() {
  Trial& t = *this;
  const std::vector<ncclUniqueId> ids = world.unique_ids(1);
  if (ids.empty()) fail("no unique id");
  ncclComm_t comm = nullptr;
  if (NCCL(ncclCommInitRank(&comm, ranks, ids[0], rank)) != ncclSuccess) fail("no communicator");
  watch(comm);
  return comm;
}

ncclComm_t Trial::split(ncclComm_t parent, int color, int key, ncclConfig_t* config) {
  Trial& t = *this;
  ncclComm_t child = nullptr;
  NCCL(ncclCommSplit(parent, color, key, &child, config));
  note("%s", child != nullptr ? "a child" : "no child");
  watch(child);
  return child;
}

ncclResult_t Trial::destroy(ncclComm_t comm) {
  Trial& t = *this;
  forget(comm);
  return NCCL(ncclCommDestroy(comm));
}

ncclResult_t Trial::abort(ncclComm_t comm) {
  Trial& t = *this;
  forget(comm);
  return NCCL(ncclCommAbort(comm));
}

cudaStream_t Trial::stream() {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  streams_.push_back(stream);
  return stream;
}

void Trial::sync(cudaStream_t stream) {
  Trial& t = *this;
  CUDA(cudaStreamSynchronize(stream));
}

Buffer::Buffer(Trial& trial, size_t blocks, size_t block_bytes)
    : trial_(trial), blocks_(blocks), block_bytes_(block_bytes) {
  void* memory = nullptr;
  const size_t bytes = blocks * block_bytes + 2 * kGuardBytes;
  require(cudaMalloc(&memory, bytes));
  memory_ = static_cast<std::byte*>(memory);
  const std::vector<std::byte> guards(bytes, kGuard);
  require(cudaMemcpy(memory_, guards.data(), bytes, cudaMemcpyHostToDevice));
}

Buffer::~Buffer() { cudaFree(memory_); }

std::byte* Buffer::at(size_t block) const { return memory_ + kGuardBytes + block * block_bytes_; }

void Buffer::fill(size_t block, Content content) const {
  std::vector<std::byte> bytes(block_bytes_);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = content_byte(content, i);
  require(cudaMemcpy(at(block), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
}

void Buffer::fill_for_all(int number) const {
  for (size_t i = 0; i < blocks_; ++i) fill(i, {trial_.rank, static_cast<int>(i), number});
}

void Buffer::expect_from_all(int number) const {
  for (size_t i = 0; i < blocks_; ++i) expect(i, {static_cast<int>(i), trial_.rank, number});
}

std::vector<std::byte> Buffer::copy(const std::byte* from, size_t bytes) const {
  std::vector<std::byte> copied(bytes);
  require(cudaMemcpy(copied.data(), from, bytes, cudaMemcpyDeviceToHost));
  return copied;
}

void Buffer::expect(size_t block, Content content) const {
  const std::vector<std::byte> bytes = copy(at(block), block_bytes_);
  size_t right = 0;
  while (right < block_bytes_ && bytes[right] == content_byte(content, right)) ++right;
  const std::string what = "message " + std::to_string(content.number) + " from " +
                           std::to_string(content.src) + " to " + std::to_string(content.dst) +
                           " in block " + std::to_string(block);
  trial_.check(right == block_bytes_, what.c_str());
}

void Buffer::expect_untouched(size_t block) const {
  const std::vector<std::byte> bytes = copy(at(block), block_bytes_);
  const bool same =
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kGuard; });
  trial_.check(same, "untouched");
}

void Buffer::show(const char* name) const {
  uint64_t state = 0;
  for (const std::byte byte : copy(memory_, blocks_ * block_bytes_ + 2 * kGuardBytes)) {
    state = property::scramble(state ^ static_cast<uint64_t>(byte)) + 1;
  }
  trial_.note("%s: %016llx", name, static_cast<unsigned long long>(state));
}

void exchange_all(Trial& t, ncclComm_t comm, cudaStream_t stream, size_t bytes, int number) {
  int ranks = 0, rank = 0;
  NCCL(ncclCommCount(comm, &ranks));
  NCCL(ncclCommUserRank(comm, &rank));
  const Buffer out(t, static_cast<size_t>(ranks), bytes), in(t, static_cast<size_t>(ranks), bytes);
  for (int peer = 0; peer < ranks; ++peer) {
    out.fill(static_cast<size_t>(peer), {rank, peer, number});
  }
  NCCL(ncclGroupStart());
  for (int peer = 0; peer < ranks; ++peer) {
    NCCL(ncclSend(out.at(peer), bytes, ncclInt8, peer, comm, stream));
    NCCL(ncclRecv(in.at(peer), bytes, ncclInt8, peer, comm, stream));
  }
  NCCL(ncclGroupEnd());
  t.sync(stream);
  for (int peer = 0; peer < ranks; ++peer) {
    in.expect(static_cast<size_t>(peer), {peer, rank, number});
  }
  in.show("received");
}

void exchange_ring(Trial& t, ncclComm_t comm, cudaStream_t stream, size_t bytes, int number) {
  const Buffer out(t, 1, bytes), in(t, 1, bytes);
  out.fill(0, {t.rank, t.next(), number});
  NCCL(ncclGroupStart());
  NCCL(ncclSend(out.at(0), bytes, ncclInt8, t.next(), comm, stream));
  NCCL(ncclRecv(in.at(0), bytes, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  in.expect(0, {t.previous(), t.rank, number});
  in.show("received");
}

struct Gate::State {
  std::promise<void> opened;
};

Gate::Gate(Trial& t, cudaStream_t stream) : state_(new State) {
  const auto wait = [](void* argument) {
    auto* const state = static_cast<State*>(argument);
    state->opened.get_future().wait();
    delete state;
  };
  CUDA(cudaLaunchHostFunc(stream, wait, state_));
}

void Gate::open() {
  if (State* const state = std::exchange(state_, nullptr)) state->opened.set_value();
}

}  // namespace conformance
