// SPDX-License-Identifier: Apache-2.0
//
// What every scenario needs: its place in the job, communicators, buffers with known contents.
// A failed call or a wrong byte ends the process with a message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace integration {

[[noreturn]] void fail(const std::string& what);
void require(cudaError_t result, const char* call);
void require(ncclResult_t result, const char* call);
void require(bool condition, const char* what);
#define REQUIRE(call) ::integration::require((call), #call)

/// At rank 0; blanks elsewhere.
std::vector<ncclUniqueId> make_ids(size_t count);

class Job {
 public:
  /// Takes rank and device from the launcher's variables; rank 0 makes `ids` unique ids for all.
  explicit Job(size_t ids);
  /// The same with ids that rank 0 has made before.
  explicit Job(std::vector<ncclUniqueId> made);

  int rank = 0, ranks = 1, device = 0;
  std::vector<ncclUniqueId> ids;

  ncclComm_t create(size_t id) const;
  cudaStream_t stream() const;
};

/// Device memory of `elements` ints. The contents of a message follow from its two ends and a
/// number.
class Buffer {
 public:
  explicit Buffer(size_t elements);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int* data() const { return data_; }
  void set(size_t offset, size_t elements, int src, int dst, int number) const;
  /// Ends the process if the range holds anything else.
  void expect(size_t offset, size_t elements, int src, int dst, int number) const;
  void expect_value(size_t offset, size_t elements, int value) const;

 private:
  size_t elements_;
  int* data_ = nullptr;
};

/// All ranks send `elements` to all, by ncclAlltoAll, and check what arrives. Returns when done.
void exchange_all(ncclComm_t comm, cudaStream_t stream, size_t elements, int number);

/// Polls until the call that returned `result` is over.
void settle(ncclComm_t comm, ncclResult_t result);

/// Waits until the communicator reports something else than success or ncclInProgress.
ncclResult_t wait_for_error(ncclComm_t comm);

struct Scenario {
  const char* name;
  void (*run)(Job&);
};
extern const std::vector<Scenario> kTraffic, kLife, kFamily, kProcesses;

/// Makes unique ids in this process and runs the scenario in a forked one, which it waits for.
/// Returns its exit status.
int run_in_child(const Scenario& scenario, size_t ids);

}  // namespace integration
