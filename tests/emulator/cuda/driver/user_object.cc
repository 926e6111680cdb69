// SPDX-License-Identifier: Apache-2.0
#include "user_object.h"

#include "handles.h"
#include "process.h"
#include "stream.h"

namespace railyard::emulator {
namespace {

/// The thread that calls destructors.
Stream& destructors() {
  static auto* const kStream = new std::shared_ptr<Stream>(std::make_shared<Stream>());
  return **kStream;
}

HandleTable<CUuserObject, UserObject>& objects() {
  static auto* const kTable = new HandleTable<CUuserObject, UserObject>(10);
  return *kTable;
}

}  // namespace

class UserObject {
 public:
  UserObject(void* data, CUhostFn destroy, unsigned references)
      : data_(data), destroy_(destroy), references_(references) {}
  void set_handle(CUuserObject handle) { handle_ = handle; }

  void retain(unsigned references) {
    std::lock_guard lock(mutex_);
    references_ += references;
  }
  CUresult release(unsigned references) {
    {
      std::lock_guard lock(mutex_);
      if (references_ < references) return CUDA_ERROR_INVALID_VALUE;
      references_ -= references;
      if (references_ > 0) return CUDA_SUCCESS;
    }
    objects().take(handle_);
    destructors().enqueue({}, [destroy = destroy_, data = data_] {
      HostFunctionScope scope;
      destroy(data);
    });
    return CUDA_SUCCESS;
  }

 private:
  void* const data_;
  const CUhostFn destroy_;
  CUuserObject handle_ = nullptr;
  std::mutex mutex_;
  unsigned references_;
};

CUresult create_user_object(void* data, CUhostFn destroy, unsigned references,
                            CUuserObject* object) {
  auto fresh = std::make_shared<UserObject>(data, destroy, references);
  *object = objects().insert(fresh);
  fresh->set_handle(*object);
  return CUDA_SUCCESS;
}

CUresult retain_user_object(CUuserObject object, unsigned references) {
  UserObjectPtr known = objects().find(object);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  known->retain(references);
  return CUDA_SUCCESS;
}

CUresult release_user_object(CUuserObject object, unsigned references) {
  UserObjectPtr known = objects().find(object);
  return known ? known->release(references) : CUDA_ERROR_INVALID_VALUE;
}

UserReferences::~UserReferences() {
  for (const auto& [object, references] : held_) object->release(references);
}

CUresult UserReferences::add(CUuserObject object, unsigned references, bool move) {
  UserObjectPtr known = objects().find(object);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  if (!move) known->retain(references);
  std::lock_guard lock(mutex_);
  held_[known] += references;
  return CUDA_SUCCESS;
}

CUresult UserReferences::remove(CUuserObject object, unsigned references) {
  UserObjectPtr known = objects().find(object);
  std::lock_guard lock(mutex_);
  auto found = held_.find(known);
  if (!known || found == held_.end() || found->second < references) return CUDA_ERROR_INVALID_VALUE;
  found->second -= references;
  if (found->second == 0) held_.erase(found);
  return known->release(references);
}

void UserReferences::share(const UserReferences& other) {
  std::scoped_lock lock(mutex_, other.mutex_);
  for (const auto& [object, references] : other.held_) {
    object->retain(1);
    held_[object] += 1;
  }
}

}  // namespace railyard::emulator
