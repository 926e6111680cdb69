// SPDX-License-Identifier: Apache-2.0
//
// The exchanges of alltoall_perf through MPI_Alltoallv (MPI_Alltoall where they are even), timed in
// the same way: begun together, one by one, the slowest rank counts. Host memory.
//
//   mpi_alltoall PATTERN SEED ITERATIONS WARMUP CHECK SIZE…      one line of JSON per size, by rank
//   0
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "../alltoall/pattern.h"

namespace {

using alltoall::Matrix;
using alltoall::Pattern;

/// Counts and offsets of one rank's side, in bytes, as MPI has them.
struct Side {
  std::vector<int> counts, offsets;
  std::vector<char> memory;

  explicit Side(const std::vector<uint64_t>& bytes) {
    int at = 0;
    for (const uint64_t b : bytes) {
      counts.push_back(static_cast<int>(b));
      offsets.push_back(at);
      at += static_cast<int>(b);
    }
    memory.resize(static_cast<size_t>(at) + 1);
  }
};

char content(int from, int to, int position) {
  return static_cast<char>(from * 31 + to * 7 + position * 13 + position / 251);
}

void exchange(const Pattern& pattern, Side& send, Side& receive) {
  if (pattern.uniform()) {
    MPI_Alltoall(send.memory.data(), send.counts[0], MPI_BYTE, receive.memory.data(),
                 receive.counts[0], MPI_BYTE, MPI_COMM_WORLD);
    return;
  }
  MPI_Alltoallv(send.memory.data(), send.counts.data(), send.offsets.data(), MPI_BYTE,
                receive.memory.data(), receive.counts.data(), receive.offsets.data(), MPI_BYTE,
                MPI_COMM_WORLD);
}

double timed(const Pattern& pattern, Side& send, Side& receive) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  exchange(pattern, send, receive);
  double own = MPI_Wtime() - begin, slowest = 0;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest * 1e6;
}

int count_wrong(const Pattern& pattern, int rank, Side& send, Side& receive) {
  const auto ranks = static_cast<int>(send.counts.size());
  for (int to = 0; to < ranks; ++to) {
    for (int i = 0; i < send.counts[static_cast<size_t>(to)]; ++i) {
      send.memory[static_cast<size_t>(send.offsets[static_cast<size_t>(to)] + i)] =
          content(rank, to, i);
    }
  }
  std::fill(receive.memory.begin(), receive.memory.end(), 0);
  exchange(pattern, send, receive);
  int wrong = 0, all = 0;
  for (int from = 0; from < ranks; ++from) {
    for (int i = 0; i < receive.counts[static_cast<size_t>(from)]; ++i) {
      const size_t at = static_cast<size_t>(receive.offsets[static_cast<size_t>(from)] + i);
      wrong += receive.memory[at] != content(from, rank, i) ? 1 : 0;
    }
  }
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

void measure(const Pattern& pattern, uint64_t seed, int iterations, int warmup, bool check,
             uint64_t size) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Matrix bytes = pattern.bytes(ranks, size, 4, seed);
  Side send(bytes[static_cast<size_t>(rank)]), receive(alltoall::received_by(bytes, rank));
  for (int i = 0; i < warmup; ++i) timed(pattern, send, receive);
  std::vector<double> times;
  for (int i = 0; i < iterations; ++i) times.push_back(timed(pattern, send, receive));
  const int wrong = check ? count_wrong(pattern, rank, send, receive) : -1;
  std::sort(times.begin(), times.end());
  if (rank != 0) return;
  std::printf("{\"size\": %llu, \"time_us_median\": %.3f, \"wrong\": %d}\n",
              static_cast<unsigned long long>(size), times[times.size() / 2], wrong);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const auto pattern = argc > 6 ? Pattern::parse(argv[1]) : std::nullopt;
  if (!pattern) {
    std::fprintf(stderr, "usage: mpi_alltoall PATTERN SEED ITERATIONS WARMUP CHECK SIZE…\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
    return 2;
  }
  for (int i = 6; i < argc; ++i) {
    measure(*pattern, std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]), std::atoi(argv[4]),
            std::atoi(argv[5]) != 0, std::strtoull(argv[i], nullptr, 10));
  }
  MPI_Finalize();
  return 0;
}
