// SPDX-License-Identifier: Apache-2.0
#include "bootstrap.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "environment.h"
#include "result.h"

namespace railyard::emulator {
namespace {

constexpr char kMark[8] = {'e', 'm', 'u', 'l', 'n', 'c', 'c', 'l'};
constexpr int kPatienceSeconds = 60;
constexpr int kDismissed = -1;       ///< number of ranks that ends a root
constexpr int kFirstWordsMs = 5000;  ///< for a connection to say who it is

struct IdContent {
  char mark[8];
  Key key;
  sockaddr_in address;
};
static_assert(sizeof(IdContent) <= 64);

struct Greeting {
  Key key;
  Record record;
};

/// The root of one id.
class Root {
 public:
  Root(UniqueFd listener, const Key& key) : listener_(std::move(listener)), key_(key) {}

  void serve() {
    ncclResult_t result = collect();
    for (UniqueFd& rank : ranks_) {
      if (!rank.valid()) continue;
      send_all(rank.get(), &result, sizeof result, -1);
      if (result != ncclSuccess) continue;
      send_all(rank.get(), table_.data(), table_.size() * sizeof(Record), -1);
    }
    if (result == ncclSuccess) settle();
  }

 private:
  /// Takes records until the table is complete.
  ncclResult_t collect() {
    for (size_t known = 0; known == 0 || known < table_.size();) {
      ncclResult_t result = wait_readable(listener_.get(), -1);
      if (result != ncclSuccess) return result;
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Greeting greeting;
      if (!fd.valid() || !read_greeting(fd.get(), &greeting)) continue;
      if (greeting.record.ranks == kDismissed) return ncclInvalidUsage;
      if (table_.empty()) {
        table_.resize(static_cast<size_t>(greeting.record.ranks));
        ranks_.resize(table_.size());
      }
      auto rank = static_cast<size_t>(greeting.record.rank);
      bool fits =
          static_cast<size_t>(greeting.record.ranks) == table_.size() && !ranks_[rank].valid();
      if (!fits) {
        ranks_.push_back(std::move(fd));
        return ncclInvalidUsage;
      }
      table_[rank] = greeting.record;
      ranks_[rank] = std::move(fd);
      ++known;
    }
    return ncclSuccess;
  }

  /// A stranger may connect and say nothing, or nonsense: it is dropped.
  bool read_greeting(int fd, Greeting* greeting) const {
    timeval limit{kFirstWordsMs / 1000, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::recv(fd, greeting, sizeof *greeting, MSG_WAITALL) != sizeof *greeting) return false;
    const Record& record = greeting->record;
    if (!(greeting->key == key_)) return false;
    return record.ranks == kDismissed || (record.rank >= 0 && record.rank < record.ranks);
  }

  void settle() {
    ncclResult_t worst = ncclSuccess;
    for (UniqueFd& rank : ranks_) {
      ncclResult_t result = ncclSuccess;
      if (receive_all(rank.get(), &result, sizeof result, -1) != ncclSuccess) {
        result = ncclRemoteError;
      }
      if (worst == ncclSuccess) worst = result;
    }
    for (UniqueFd& rank : ranks_) send_all(rank.get(), &worst, sizeof worst, -1);
  }

  UniqueFd listener_;
  const Key key_;
  std::vector<Record> table_;
  std::vector<UniqueFd> ranks_;
};

ncclResult_t start_root(sockaddr_in* address, const Key& key) {
  UniqueFd listener;
  ncclResult_t result = listen_at(address, &listener);
  if (result != ncclSuccess) return result;
  auto root = std::make_shared<Root>(std::move(listener), key);
  std::thread([root] { root->serve(); }).detach();
  return ncclSuccess;
}

uint64_t hash(const std::string& text) {
  uint64_t value = 14695981039346656037ULL;  // FNV-1a
  for (char c : text) value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return value;
}

const char* fixed_address() {
  const char* address = variable("NCCL_COMM_ID");
  return address != nullptr && *address != '\0' ? address : nullptr;
}

}  // namespace

ncclResult_t make_unique_id(ncclUniqueId* id) {
  IdContent content{};
  ::memcpy(content.mark, kMark, sizeof kMark);
  ncclResult_t result;
  if (const char* fixed = fixed_address()) {
    result = parse_address(fixed, &content.address);
  } else {
    if (!make_key(&content.key)) return fail_system("random numbers for a unique id");
    result = meeting_address(&content.address);
    if (result == ncclSuccess) result = start_root(&content.address, content.key);
  }
  if (result != ncclSuccess) return result;
  ::memset(id, 0, sizeof *id);
  ::memcpy(id->internal, &content, sizeof content);
  return ncclSuccess;
}

void dismiss_root(const ncclUniqueId& id) {
  IdContent content{};
  ::memcpy(&content, id.internal, sizeof content);
  if (fixed_address() != nullptr || ::memcmp(content.mark, kMark, sizeof kMark) != 0) return;
  UniqueFd root;
  if (connect_to(content.address, 0, -1, &root) != ncclSuccess) return;
  Greeting greeting{content.key, {}};
  greeting.record.ranks = kDismissed;
  send_all(root.get(), &greeting, sizeof greeting, -1);
}

ncclResult_t Bootstrap::exchange(const ncclUniqueId& id, const Record& own, int cancel,
                                 std::vector<Record>* table) {
  IdContent content{};
  ::memcpy(&content, id.internal, sizeof content);
  ncclResult_t result = ncclSuccess;
  if (const char* fixed = fixed_address()) {
    content.key = Key{};
    result = parse_address(fixed, &content.address);
    if (result != ncclSuccess) return result;
    sockaddr_in address = content.address;
    if (own.rank == 0) result = start_root(&address, content.key);
  } else if (::memcmp(content.mark, kMark, sizeof kMark) != 0) {
    return fail(ncclInvalidArgument, "the unique id was not made by ncclGetUniqueId");
  }
  if (result == ncclSuccess) {
    result = connect_to(content.address, kPatienceSeconds, cancel, &root_);
  }
  if (result != ncclSuccess) return result;
  Greeting greeting{content.key, own};
  result = send_all(root_.get(), &greeting, sizeof greeting, cancel);
  ncclResult_t verdict = ncclSuccess;
  if (result == ncclSuccess) result = receive_all(root_.get(), &verdict, sizeof verdict, cancel);
  if (result != ncclSuccess) return result;
  if (verdict != ncclSuccess) {
    return fail(
        verdict,
        "rank %d of %d: the ranks of this unique id differ in their number of ranks, or two have "
        "the same rank",
        own.rank, own.ranks);
  }
  table->resize(static_cast<size_t>(own.ranks));
  return receive_all(root_.get(), table->data(), table->size() * sizeof(Record), cancel);
}

ncclResult_t Bootstrap::confirm(ncclResult_t own, int cancel) {
  ncclResult_t all = own;
  ncclResult_t result = send_all(root_.get(), &own, sizeof own, cancel);
  if (result == ncclSuccess) result = receive_all(root_.get(), &all, sizeof all, cancel);
  root_.reset();
  if (own != ncclSuccess) return own;
  if (result != ncclSuccess) return result;
  return all == ncclSuccess ? all : fail(all, "another rank failed to create the communicator");
}

uint64_t host_hash(int device) {
  if (const char* list = ::getenv("EMULATOR_HOSTIDS")) {
    std::istringstream entries(list);
    std::string entry;
    for (int i = 0; i <= device && std::getline(entries, entry, ','); ++i) {
      if (i == device) return hash(entry);
    }
  }
  if (const char* name = variable("NCCL_HOSTID"); name != nullptr && *name != '\0') {
    return hash(name);
  }
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return hash(name + boot);
}

}  // namespace railyard::emulator
