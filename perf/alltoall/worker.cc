// SPDX-License-Identifier: Apache-2.0
#include "worker.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "cuda_check.h"

namespace alltoall {
namespace {

using moe::check;

constexpr uint64_t kGuardBytes = 256;
constexpr int kGuard = 0xa5;

/// The position-th eight bytes of a block (splitmix64 over all that tells them apart).
uint64_t word(uint64_t seed, uint64_t number, int from, int to, uint64_t position) {
  uint64_t x = seed * 0x9e3779b97f4a7c15ULL + number;
  for (const uint64_t part : {static_cast<uint64_t>(from), static_cast<uint64_t>(to), position}) {
    x += part + 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    x ^= x >> 31;
  }
  return x;
}

std::vector<char> content(uint64_t seed, uint64_t number, int from, int to, uint64_t bytes) {
  std::vector<uint64_t> words((bytes + 7) / 8);
  for (size_t i = 0; i < words.size(); ++i) words[i] = word(seed, number, from, to, i);
  std::vector<char> result(bytes);
  if (bytes > 0) std::memcpy(result.data(), words.data(), bytes);
  return result;
}

/// Offsets of blocks, apart by guards or without a gap, and the end of the last.
std::vector<uint64_t> offsets(const std::vector<uint64_t>& sizes, uint64_t gap) {
  std::vector<uint64_t> result;
  uint64_t at = kGuardBytes;
  for (const uint64_t size : sizes) {
    result.push_back(at);
    at += gap > 0 ? (size + gap + 15) / 16 * 16 : size;
  }
  result.push_back(at);
  return result;
}

}  // namespace

Worker::Worker(const Options& options, const Share& share, const ncclUniqueId& id)
    : options_(options),
      ranks_(share.ranks),
      one_call_(options.pattern.uniform() && !options.messages),
      gpus_(static_cast<size_t>(share.count)) {
  for (int i = 0; i < share.count; ++i) {
    Gpu& gpu = gpus_[static_cast<size_t>(i)];
    gpu.device = share.device + i;
    gpu.rank = share.first + i;
    use(gpu);
    check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  check(ncclGroupStart(), "ncclGroupStart");
  for (Gpu& gpu : gpus_) {
    use(gpu);
    check(ncclCommInitRank(&gpu.comm, ranks_, id, gpu.rank), "ncclCommInitRank");
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
}

Worker::~Worker() {
  for (Gpu& gpu : gpus_) {
    cudaSetDevice(gpu.device);
    if (gpu.comm != nullptr) ncclCommAbort(gpu.comm);
    cudaFree(gpu.control);
    release(&gpu);
    if (gpu.stream != nullptr) cudaStreamDestroy(gpu.stream);
  }
}

void Worker::use(const Gpu& gpu) const { check(cudaSetDevice(gpu.device), "cudaSetDevice"); }

void Worker::release(Gpu* gpu) const {
  cudaFree(std::exchange(gpu->send, nullptr));
  cudaFree(std::exchange(gpu->receive, nullptr));
}

void Worker::close() {
  for (Gpu& gpu : gpus_) {
    use(gpu);
    check(ncclCommDestroy(std::exchange(gpu.comm, nullptr)), "ncclCommDestroy");
  }
}

void Worker::synchronize() const {
  for (const Gpu& gpu : gpus_) {
    use(gpu);
    check(cudaStreamSynchronize(gpu.stream), "cudaStreamSynchronize");
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(gpu.comm, &state), "ncclCommGetAsyncError");
    check(state, "exchanging");
  }
}

std::vector<std::vector<uint64_t>> Worker::gather(const std::vector<std::vector<uint64_t>>& own) {
  const size_t bytes = own.front().size() * sizeof(uint64_t);
  const auto n = static_cast<size_t>(ranks_);
  for (size_t i = 0; i < gpus_.size(); ++i) {
    Gpu& gpu = gpus_[i];
    use(gpu);
    if (gpu.control_bytes < (n + 1) * bytes) {
      gpu.control_bytes = 0;
      cudaFree(std::exchange(gpu.control, nullptr));
      check(cudaMalloc(reinterpret_cast<void**>(&gpu.control), (n + 1) * bytes), "cudaMalloc");
      gpu.control_bytes = (n + 1) * bytes;
    }
    check(cudaMemcpy(gpu.control, own[i].data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  check(ncclGroupStart(), "ncclGroupStart");
  for (const Gpu& gpu : gpus_) {
    for (int peer = 0; peer < ranks_; ++peer) {
      char* to = gpu.control + (static_cast<size_t>(peer) + 1) * bytes;
      check(ncclSend(gpu.control, bytes, ncclInt8, peer, gpu.comm, gpu.stream), "ncclSend");
      check(ncclRecv(to, bytes, ncclInt8, peer, gpu.comm, gpu.stream), "ncclRecv");
    }
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  synchronize();
  std::vector<std::vector<uint64_t>> all(n, std::vector<uint64_t>(own.front().size()));
  for (size_t peer = 0; peer < n; ++peer) {
    check(cudaMemcpy(all[peer].data(), gpus_.front().control + (peer + 1) * bytes, bytes,
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
  }
  return all;
}

void Worker::prepare(const Matrix& bytes) {
  bytes_ = bytes;
  const uint64_t gap = one_call_ ? 0 : kGuardBytes;
  for (Gpu& gpu : gpus_) {
    use(gpu);
    release(&gpu);
    gpu.send_at = offsets(bytes[static_cast<size_t>(gpu.rank)], gap);
    gpu.receive_at = offsets(received_by(bytes, gpu.rank), gap);
    for (const auto& [memory, end] : {std::pair{&gpu.send, gpu.send_at.back()},
                                      std::pair{&gpu.receive, gpu.receive_at.back()}}) {
      check(cudaMalloc(reinterpret_cast<void**>(memory), end + kGuardBytes), "cudaMalloc");
      check(cudaMemset(*memory, kGuard, end + kGuardBytes), "cudaMemset");
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
}

void Worker::post(const Gpu& gpu) const {
  const ncclDataType_t type = options_.data_type();
  const uint64_t element = options_.type_bytes();
  if (one_call_) {
    check(ncclAlltoAll(gpu.send + gpu.send_at[0], gpu.receive + gpu.receive_at[0],
                       bytes_[0][0] / element, type, gpu.comm, gpu.stream),
          "ncclAlltoAll");
    return;
  }
  const auto own = static_cast<size_t>(gpu.rank);
  for (int step = 0; step < ranks_; ++step) {
    // Everybody begins elsewhere.
    const int to = (gpu.rank + step) % ranks_, from = (gpu.rank - step + ranks_) % ranks_;
    const auto t = static_cast<size_t>(to), f = static_cast<size_t>(from);
    if (bytes_[own][t] > 0) {
      check(ncclSend(gpu.send + gpu.send_at[t], bytes_[own][t] / element, type, to, gpu.comm,
                     gpu.stream),
            "ncclSend");
    }
    if (bytes_[f][own] > 0) {
      check(ncclRecv(gpu.receive + gpu.receive_at[f], bytes_[f][own] / element, type, from,
                     gpu.comm, gpu.stream),
            "ncclRecv");
    }
  }
}

uint64_t Worker::exchange() {
  gather(
      std::vector<std::vector<uint64_t>>(gpus_.size(), {0}));  // nobody begins before all are here
  const auto begin = std::chrono::steady_clock::now();
  check(ncclGroupStart(), "ncclGroupStart");
  for (const Gpu& gpu : gpus_) post(gpu);
  check(ncclGroupEnd(), "ncclGroupEnd");
  synchronize();
  const auto time = std::chrono::steady_clock::now() - begin;
  return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

std::vector<uint64_t> Worker::exchange_checked(uint64_t number) {
  for (const Gpu& gpu : gpus_) fill(gpu, number);
  exchange();
  std::vector<uint64_t> wrong;
  for (const Gpu& gpu : gpus_) wrong.push_back(count_wrong(gpu, number));
  return wrong;
}

void Worker::fill(const Gpu& gpu, uint64_t number) const {
  use(gpu);
  const auto own = static_cast<size_t>(gpu.rank);
  check(cudaMemset(gpu.receive, kGuard, gpu.receive_at.back() + kGuardBytes), "cudaMemset");
  for (int to = 0; to < ranks_; ++to) {
    const auto t = static_cast<size_t>(to);
    const auto block = content(options_.seed, number, gpu.rank, to, bytes_[own][t]);
    check(cudaMemcpy(gpu.send + gpu.send_at[t], block.data(), block.size(), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

uint64_t Worker::count_wrong(const Gpu& gpu, uint64_t number) const {
  use(gpu);
  std::vector<char> got(gpu.receive_at.back() + kGuardBytes);
  check(cudaMemcpy(got.data(), gpu.receive, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  const uint64_t element = options_.type_bytes();
  const auto own = static_cast<size_t>(gpu.rank);
  uint64_t wrong = 0, guard = 0;  // the next byte that nobody may have written
  const auto check_guard = [&](uint64_t end) {
    for (; guard < end; ++guard) wrong += got[guard] != static_cast<char>(kGuard) ? 1 : 0;
  };
  for (int from = 0; from < ranks_; ++from) {
    const auto f = static_cast<size_t>(from);
    const auto block = content(options_.seed, number, from, gpu.rank, bytes_[f][own]);
    const char* at = got.data() + gpu.receive_at[f];
    check_guard(gpu.receive_at[f]);
    for (uint64_t i = 0; i < block.size(); i += element) {
      wrong += std::memcmp(at + i, block.data() + i, element) != 0 ? 1 : 0;
    }
    guard = gpu.receive_at[f] + block.size();
  }
  check_guard(got.size());
  return wrong;
}

}  // namespace alltoall
