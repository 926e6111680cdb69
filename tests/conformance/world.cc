// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace conformance {
namespace {

const char* environment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) fail(std::string(name) + " is not set; start through the launcher");
  return value;
}

void send_all(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) fail(std::string("another rank is gone: ") + std::strerror(errno));
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void receive_all(int fd, void* data, size_t bytes) {
  if (bytes == 0) return;
  if (recv(fd, data, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) {
    fail("another rank is gone");
  }
}

void send_text(int fd, const std::string& text) {
  const uint64_t bytes = text.size();
  send_all(fd, &bytes, sizeof bytes);
  send_all(fd, text.data(), text.size());
}

std::string receive_text(int fd) {
  uint64_t bytes = 0;
  receive_all(fd, &bytes, sizeof bytes);
  std::string text(bytes, '\0');
  receive_all(fd, text.data(), bytes);
  return text;
}

class ProcessWorld final : public World {
 public:
  ProcessWorld(int own_rank, int all_ranks, int own_device)
      : World(own_rank, all_ranks, own_device), peers_(static_cast<size_t>(all_ranks), -1) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(environment("MASTER_ADDR"), environment("MASTER_PORT"), &hints, &found) != 0) {
      fail("MASTER_ADDR or MASTER_PORT makes no address");
    }
    rank == 0 ? serve(*found) : join(*found);
    freeaddrinfo(found);
  }

  std::vector<std::string> gather(const std::string& mine) override {
    std::vector<std::string> all(peers_.size());
    if (rank != 0) {
      send_text(peers_[0], mine);
      for (std::string& one : all) one = receive_text(peers_[0]);
      return all;
    }
    all[0] = mine;
    for (size_t peer = 1; peer < peers_.size(); ++peer) all[peer] = receive_text(peers_[peer]);
    for (size_t peer = 1; peer < peers_.size(); ++peer) {
      for (const std::string& one : all) send_text(peers_[peer], one);
    }
    return all;
  }

 private:
  static int new_socket() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail(std::string("no socket: ") + std::strerror(errno));
    return fd;
  }

  void serve(const addrinfo& address) {
    const int listener = new_socket();
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, address.ai_addr, address.ai_addrlen) != 0 || listen(listener, 64) != 0) {
      fail(std::string("cannot listen on MASTER_PORT: ") + std::strerror(errno));
    }
    for (int i = 1; i < ranks; ++i) {
      const int fd = accept(listener, nullptr, nullptr);
      if (fd < 0) fail(std::string("accept: ") + std::strerror(errno));
      peers_.at(static_cast<size_t>(std::stoi(receive_text(fd)))) = fd;
    }
    close(listener);
  }

  void join(const addrinfo& address) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;;) {
      const int fd = new_socket();
      if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) {
        peers_[0] = fd;
        break;
      }
      close(fd);
      if (std::chrono::steady_clock::now() > deadline) fail("rank 0 does not listen");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it may not have started yet
    }
    send_text(peers_[0], std::to_string(rank));
  }

  std::vector<int> peers_;  ///< connections: rank 0's to all, the others' to rank 0
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(int own_rank, int all_ranks, ThreadMeeting& meeting)
      : World(own_rank, all_ranks, own_rank), meeting_(meeting) {}
  std::vector<std::string> gather(const std::string& mine) override {
    return meeting_.gather(rank, mine);
  }

 private:
  ThreadMeeting& meeting_;
};

}  // namespace

void fail(const std::string& what) {
  const char* const rank = std::getenv("RANK");
  std::fprintf(stderr, "rank %s: %s\n", rank != nullptr ? rank : "?", what.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

std::vector<ncclUniqueId> World::unique_ids(size_t count) {
  std::string made;
  for (size_t i = 0; i < count && rank == 0; ++i) {
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) break;
    made.append(id.internal, sizeof id.internal);
  }
  const std::string all = gather(made).front();
  std::vector<ncclUniqueId> ids(all.size() / sizeof(ncclUniqueId));
  for (size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(ids[i].internal, all.data() + i * sizeof(ncclUniqueId), sizeof(ncclUniqueId));
  }
  return ids;
}

std::unique_ptr<World> make_process_world() {
  return std::make_unique<ProcessWorld>(std::atoi(environment("RANK")),
                                        std::atoi(environment("WORLD_SIZE")),
                                        std::atoi(environment("LOCAL_RANK")));
}

std::vector<std::string> ThreadMeeting::gather(int rank, const std::string& mine) {
  std::unique_lock lock(mutex_);
  given_[static_cast<size_t>(rank)] = mine;
  if (++here_ == given_.size()) {
    complete_ = given_;
    here_ = 0;
    ++round_;
    changed_.notify_all();
    return complete_;
  }
  changed_.wait(lock, [this, round = round_] { return round_ != round; });
  return complete_;
}

std::unique_ptr<World> make_thread_world(int rank, int ranks, ThreadMeeting& meeting) {
  return std::make_unique<ThreadWorld>(rank, ranks, meeting);
}

}  // namespace conformance
