// SPDX-License-Identifier: Apache-2.0
//
// User objects: something of the program that lives as long as graphs need it. A reference belongs
// to the program, to a graph or to an executable graph; when the last one goes, a thread of the
// driver's own calls the destructor, which must not call CUDA. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include <cuda.h>

namespace railyard::emulator {

class UserObject;
using UserObjectPtr = std::shared_ptr<UserObject>;

CUresult create_user_object(void* data, CUhostFn destroy, unsigned references,
                            CUuserObject* object);
CUresult retain_user_object(CUuserObject object, unsigned references);
CUresult release_user_object(CUuserObject object, unsigned references);

/// References that a graph holds; given back when it ends.
class UserReferences {
 public:
  UserReferences() = default;
  UserReferences(const UserReferences&) = delete;
  UserReferences& operator=(const UserReferences&) = delete;
  ~UserReferences();

  /// Takes further references, or with `move` the caller's own.
  CUresult add(CUuserObject object, unsigned references, bool move);
  /// CUDA_ERROR_INVALID_VALUE if it holds fewer.
  CUresult remove(CUuserObject object, unsigned references);
  /// One reference to each object that `other` holds.
  void share(const UserReferences& other);

 private:
  mutable std::mutex mutex_;
  std::map<UserObjectPtr, unsigned> held_;
};

}  // namespace railyard::emulator
