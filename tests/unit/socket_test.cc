// SPDX-License-Identifier: Apache-2.0
//
// The wire format, sockets, deadlines and passed descriptors.
#include "base/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fork.h"
#include "base/wire.h"

namespace railyard {
namespace {

using testing::HasSubstr;

TEST(Wire, ValuesComeBack) {
  wire::Writer out;
  out.u8(200);
  out.u16(0xBEEF);
  out.u32(0xDEADBEEF);
  out.u64(0x0123456789ABCDEFULL);
  out.i32(-5);
  out.boolean(true);
  out.text("node a");
  const wire::Bytes bytes = out.bytes();
  EXPECT_EQ(bytes[1], std::byte{0xEF}) << "little-endian";
  wire::Reader in(bytes);
  EXPECT_EQ(in.u8(), 200);
  EXPECT_EQ(in.u16(), 0xBEEF);
  EXPECT_EQ(in.u32(), 0xDEADBEEF);
  EXPECT_EQ(in.u64(), 0x0123456789ABCDEFULL);
  EXPECT_EQ(in.i32(), -5);
  EXPECT_TRUE(in.boolean());
  EXPECT_EQ(in.text(), "node a");
  EXPECT_TRUE(in.complete());
  EXPECT_EQ(in.u8(), 0);
  EXPECT_FALSE(in.ok());
}

TEST(Wire, NothingIsReadPastTheEnd) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 5000; ++round) {
    wire::Bytes bytes(random() % 40);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    wire::Reader in(bytes);
    while (in.ok() && !in.complete()) {
      switch (random() % 6) {
        case 0:
          in.u8();
          break;
        case 1:
          in.u64();
          break;
        case 2:
          EXPECT_LE(in.text().size(), bytes.size());
          break;
        case 3:
          EXPECT_LE(in.count(3) * 3, bytes.size());
          break;
        case 4:
          in.boolean();
          break;
        default:
          EXPECT_LE(in.raw(random() % 8).size(), bytes.size());
          break;
      }
    }
  }
}

net::SocketAddress loopback() { return net::SocketAddress::parse("127.0.0.1", 0).take(); }

struct Pair {
  UniqueFd a, b;
};
Pair connected() {
  auto listener = net::listen_on(loopback());
  EXPECT_TRUE(listener.ok());
  Pair pair;
  pair.a = net::connect_to(listener->address, net::Deadline::after_s(10)).take();
  EXPECT_TRUE(net::wait_for(listener->fd.get(), POLLIN, net::Deadline::after_s(10)).ok());
  pair.b = net::accept_next(listener->fd.get()).take();
  EXPECT_TRUE(pair.b.valid());
  return pair;
}

wire::Bytes pattern(size_t size) {
  wire::Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 9));
  return bytes;
}

TEST(Sockets, LargeFramesCrossWhole) {
  Pair pair = connected();
  const wire::Bytes sent = pattern(8 << 20);
  std::thread sender(
      [&] { EXPECT_TRUE(net::send_frame(pair.a.get(), sent, net::Deadline::after_s(30)).ok()); });
  const auto got = net::receive_frame(pair.b.get(), 16 << 20, net::Deadline::after_s(30));
  sender.join();
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_TRUE(*got == sent);
}

TEST(Sockets, FramesBeyondTheLimitAreRefused) {
  Pair pair = connected();
  ASSERT_TRUE(net::send_frame(pair.a.get(), pattern(100), net::Deadline::after_s(10)).ok());
  const auto got = net::receive_frame(pair.b.get(), 99, net::Deadline::after_s(10));
  ASSERT_FALSE(got.ok());
  EXPECT_THAT(got.status().message(), HasSubstr("100 bytes"));
}

TEST(Sockets, ClosingAndSilenceAreTold) {
  Pair pair = connected();
  std::byte one[1];
  EXPECT_THAT(net::receive_all(pair.b.get(), one, net::Deadline::after_ms(1)).message(),
              HasSubstr("in time"));
  pair.a.reset();
  EXPECT_THAT(net::receive_all(pair.b.get(), one, net::Deadline::never()).message(),
              HasSubstr("closed"));
}

TEST(Sockets, RefusedConnectionsNameTheAddress) {
  auto listener = net::listen_on(loopback());
  const net::SocketAddress address = listener->address;
  listener->fd.reset();
  const auto fd = net::connect_to(address, net::Deadline::after_s(10));
  ASSERT_FALSE(fd.ok());
  EXPECT_THAT(fd.status().message(), HasSubstr(address.text()));
}

TEST(Sockets, AddressesTravel) {
  for (const char* host : {"10.1.2.3", "fd00::17"}) {
    const auto address = net::SocketAddress::parse(host, 4711).take();
    wire::Writer out;
    address.encode(out);
    wire::Reader in(out.bytes());
    EXPECT_EQ(net::SocketAddress::decode(in).text(), address.text());
    EXPECT_TRUE(in.complete());
  }
  const wire::Bytes bad = {std::byte{9}, std::byte{0}, std::byte{0}};
  wire::Reader in(bad);
  net::SocketAddress::decode(in);
  EXPECT_FALSE(in.ok());
  EXPECT_FALSE(net::SocketAddress::parse("not-a-number", 1).ok());
}

TEST(UnixSockets, DescriptorsArePassed) {
  const std::string name = "railyard-socket-test-" + std::to_string(getpid());
  const UniqueFd listener = net::listen_on_unix(name).take();
  const UniqueFd a = net::connect_to_unix(name, net::Deadline::after_s(10)).take();
  const UniqueFd b = net::accept_next(listener.get()).take();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const int fds[] = {write_end.get(), read_end.get()};
  const wire::Bytes body = pattern(1000);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(net::send_with_fds(a.get(), body, fds, net::Deadline::after_s(10)).ok());
  }
  auto frame = net::receive_with_fds(b.get(), 1000, 2, net::Deadline::after_s(10));
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  EXPECT_TRUE(frame->bytes == body);
  ASSERT_EQ(frame->fds.size(), 2u);
  EXPECT_NE(fcntl(frame->fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(write(frame->fds[0].get(), "x", 1), 1);
  char got = 0;
  ASSERT_EQ(read(read_end.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
  EXPECT_FALSE(net::receive_with_fds(b.get(), 1000, 1, net::Deadline::after_s(10)).ok())
      << "more descriptors than expected";
}

TEST(UnixSockets, NobodyListening) {
  EXPECT_FALSE(net::connect_to_unix("railyard-nobody-" + std::to_string(getpid()),
                                    net::Deadline::after_s(10))
                   .ok());
}

TEST(Forks, ChildrenKeepNoOwnedDescriptor) {
  close_in_children();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd owned(ends[0]), other(ends[1]);
  UniqueFd moved(std::move(owned));
  const int kept = other.release();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool right = fcntl(moved.get(), F_GETFD) < 0 && fcntl(kept, F_GETFD) >= 0;
    _exit(right ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  EXPECT_GE(fcntl(moved.get(), F_GETFD), 0) << "the parent keeps what it owns";
  close(kept);
}

TEST(Forks, ChildrenStartAfresh) {
  close_in_children();
  PerProcess<int> numbers;
  int made = 0;
  const auto make = [&] { return new int(++made); };
  const std::unique_ptr<int> first(&numbers.get(make));
  EXPECT_EQ(&numbers.get(make), first.get());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(numbers.get(make) == 2 && numbers.get(make) == 2 ? 0 : 1);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  EXPECT_EQ(numbers.get(make), 1);
}

TEST(Secrets, CompareByContent) {
  const auto a = net::random_bytes(16).take();
  auto b = a;
  EXPECT_TRUE(net::equal_secrets(a, b));
  b[15] ^= std::byte{1};
  EXPECT_FALSE(net::equal_secrets(a, b));
  b.pop_back();
  EXPECT_FALSE(net::equal_secrets(a, b));
  EXPECT_FALSE(net::equal_secrets(a, net::random_bytes(16).take()));
}

}  // namespace
}  // namespace railyard
