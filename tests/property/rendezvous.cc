// SPDX-License-Identifier: Apache-2.0
#include "rendezvous.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "require.h"

namespace property {
namespace {

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) fail(std::string(name) + " is not set; start through the launcher");
  return value;
}

/// Calls `use` with the address and a fresh socket; keeps the socket if it returns true.
template <typename Use>
int with_master_address(int flags, Use use) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(environment("MASTER_ADDR"), environment("MASTER_PORT"), &hints, &found) != 0) {
    fail("MASTER_ADDR or MASTER_PORT makes no address");
  }
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && !use(fd, *found)) {
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  return fd;
}

void serve(int ranks, const std::vector<ncclUniqueId>& ids) {
  const int listener = with_master_address(AI_PASSIVE, [](int fd, const addrinfo& address) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, 64) == 0;
  });
  if (listener < 0) fail(std::string("cannot listen on MASTER_PORT: ") + std::strerror(errno));
  // Nobody goes on, perhaps to ask for other ids, before all have come and nobody listens any more.
  std::vector<int> peers;
  for (int i = 1; i < ranks; ++i) peers.push_back(accept(listener, nullptr, nullptr));
  close(listener);
  for (const int peer : peers) {
    const size_t bytes = ids.size() * sizeof(ncclUniqueId);
    if (peer < 0 || send(peer, ids.data(), bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) {
      fail(std::string("cannot send unique ids: ") + std::strerror(errno));
    }
    close(peer);
  }
}

void ask(std::vector<ncclUniqueId>& ids) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int fd = -1;
  while (fd < 0) {
    fd = with_master_address(0, [](int socket, const addrinfo& address) {
      return connect(socket, address.ai_addr, address.ai_addrlen) == 0;
    });
    if (fd >= 0) break;
    if (std::chrono::steady_clock::now() > deadline) fail("rank 0 does not listen on MASTER_PORT");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it may not have started yet
  }
  const size_t bytes = ids.size() * sizeof(ncclUniqueId);
  if (recv(fd, ids.data(), bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) {
    fail("rank 0 closed the connection before it sent the unique ids");
  }
  close(fd);
}

}  // namespace

void share_between_processes(int rank, int ranks, std::vector<ncclUniqueId>& ids) {
  if (rank == 0) {
    serve(ranks, ids);
  } else {
    ask(ids);
  }
}

void ThreadRendezvous::share(int rank, std::vector<ncclUniqueId>& ids) {
  std::unique_lock lock(mutex_);
  if (rank == 0) {
    ids_ = ids;
    set_ = true;
    ready_.notify_all();
  } else {
    ready_.wait(lock, [this] { return set_; });
    ids = ids_;
  }
}

}  // namespace property
