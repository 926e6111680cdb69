// SPDX-License-Identifier: Apache-2.0
// Rank 0's store with its clients as threads of one process.
#include "store.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "error.h"

namespace moe {
namespace {

using std::chrono::seconds;

// A socket bound to a free port of loopback; the port stays taken while it lives.
class FreePort final {
 public:
  FreePort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    number_ = ntohs(address.sin_port);
  }
  ~FreePort() { free(); }
  FreePort(const FreePort&) = delete;
  FreePort& operator=(const FreePort&) = delete;
  std::uint16_t number() const { return number_; }
  void hold() { EXPECT_EQ(listen(fd_, 1), 0); }
  std::uint16_t free() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    return number_;
  }

 private:
  int fd_;
  std::uint16_t number_ = 0;
};

ncclUniqueId some_id() {
  ncclUniqueId id{};
  for (std::size_t i = 0; i < sizeof(id.internal); ++i) id.internal[i] = static_cast<char>(i * 3);
  return id;
}

bool same(const ncclUniqueId& a, const ncclUniqueId& b) {
  return std::equal(std::begin(a.internal), std::end(a.internal), std::begin(b.internal));
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Store, HandsTheIdToAllWhoeverComesFirst) {
  const std::uint16_t port = FreePort().free();
  const ncclUniqueId id = some_id();
  std::vector<std::thread> ranks;
  std::vector<ncclUniqueId> got(5);
  for (int rank = 4; rank > 0; --rank) {  // clients begin before there is a server
    ranks.emplace_back([&, rank] {
      got[static_cast<std::size_t>(rank)] = fetch_id("localhost", port, rank, 5, seconds(30));
    });
  }
  serve_id(id, port, 5, seconds(30));
  for (std::thread& rank : ranks) rank.join();
  for (std::size_t rank = 1; rank < 5; ++rank) EXPECT_TRUE(same(got[rank], id));
}

TEST(Store, DropsStrangers) {
  const std::uint16_t port = FreePort().free();
  std::thread server([&] { serve_id(some_id(), port, 2, seconds(30)); });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = -1;
  do {
    if (fd >= 0) close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
  } while (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0);
  const char junk[] = "GET / HTTP/1.0\r\n\r\n";
  EXPECT_GT(send(fd, junk, sizeof(junk), MSG_NOSIGNAL), 0);
  char reply = 0;
  EXPECT_LE(recv(fd, &reply, 1, 0), 0);  // closed without an answer
  close(fd);
  EXPECT_TRUE(same(fetch_id("127.0.0.1", port, 1, 2, seconds(30)), some_id()));
  server.join();
}

TEST(Store, NamesWhoIsMissing) {
  const std::uint16_t port = FreePort().free();
  const std::string server = message_of([&] { serve_id(some_id(), port, 3, seconds(0)); });
  EXPECT_NE(server.find("rank 1 (and 1 more) did not come"), std::string::npos) << server;
  const std::string client = message_of([&] { fetch_id("127.0.0.1", port, 1, 3, seconds(0)); });
  EXPECT_NE(client.find("MASTER_ADDR"), std::string::npos) << client;
}

TEST(Store, SaysWhenAPortIsTaken) {
  FreePort port;
  port.hold();
  const std::string text = message_of([&] { serve_id(some_id(), port.number(), 2, seconds(0)); });
  EXPECT_NE(text.find("--store-port"), std::string::npos) << text;
}

TEST(Store, BothSidesNoticeDifferentJobSizes) {
  const std::uint16_t port = FreePort().free();
  std::string client;
  std::thread other(
      [&] { client = message_of([&] { fetch_id("127.0.0.1", port, 1, 4, seconds(30)); }); });
  const std::string server = message_of([&] { serve_id(some_id(), port, 2, seconds(30)); });
  other.join();
  EXPECT_NE(server.find("has 4 ranks, this one 2"), std::string::npos) << server;
  EXPECT_NE(client.find("has 2 ranks, but this one has 4"), std::string::npos) << client;
}

}  // namespace
}  // namespace moe
