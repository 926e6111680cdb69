// SPDX-License-Identifier: Apache-2.0
//
// What is particular to the verbs transport, on soft-RoCE devices that a bridge joins: queue pairs
// as the kernel counts them, queues that must not overrun, processes that die, cables that are cut.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/socket.h"
#include "transport/verbs/handshake.h"
#include "verbs_kind.h"

namespace railyard::verbs {
namespace {

using transport::Area;
using transport::Cell;
using transport::LinkId;
using transport::Transport;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kPool = 4 << 20;

/// A transport with its memory, and what it heard.
class Side final : public transport::Receiver {
 public:
  explicit Side(const Options& options) : Side(make_one(options)) {}
  explicit Side(std::unique_ptr<Transport> made) : transport(std::move(made)) {
    Area from, to;
    from.host = staging.data();
    to.host = landing_memory.data();
    from.bytes = to.bytes = kPool;
    const Status status = transport->listen(from, to);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  LinkId open(const transport::Address& address, const std::string& name) {
    const Result<LinkId> link = transport->open(address, name);
    EXPECT_TRUE(link.ok()) << link.status().message();
    return link.ok() ? *link : LinkId{};
  }

  std::span<std::byte> landing(LinkId, uint32_t) override { return landing_memory; }
  void on_cell(LinkId, uint32_t tag) override {
    ++cells;
    last_tag = tag;
  }
  void on_credit(LinkId, uint32_t tag) override {
    ++credits;
    last_tag = tag;
  }
  void on_link_down(LinkId link, const Status& why) override {
    ++downs;
    down_link = link;
    down_why = why;
  }

  std::vector<std::byte> staging = std::vector<std::byte>(kPool);
  std::vector<std::byte> landing_memory = std::vector<std::byte>(kPool);
  uint64_t cells = 0, credits = 0, downs = 0;
  uint32_t last_tag = 0;
  LinkId down_link{};
  Status down_why;
  std::unique_ptr<Transport> transport;  // goes first
};

/// Lets the sides work until `done` holds; false after a minute.
bool drive(const std::vector<Side*>& sides, const std::function<bool()>& done) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (Clock::now() > end) return false;
    std::vector<pollfd> fds;
    for (Side* side : sides) fds.push_back({side->transport->event_fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), 1000);
    for (Side* side : sides) side->transport->progress(*side);
  }
  return true;
}

int run(const std::string& command) { return std::system(command.c_str()); }

/// Reliable queue pairs of this process, as the kernel lists them.
int queue_pairs_in_kernel() {
  const std::string command =
      "rdma resource show qp | grep 'type RC' | grep -c 'pid " + std::to_string(getpid()) + " '";
  FILE* pipe = popen(command.c_str(), "r");
  int count = -1;
  if (pipe == nullptr || std::fscanf(pipe, "%d", &count) != 1) count = -1;
  if (pipe != nullptr) pclose(pipe);
  return count;
}

class VerbsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_GE(rxe_devices().size(), 3U); }
  static Options device(int number) { return options_for("rxe" + std::to_string(number)); }
};

TEST_F(VerbsTest, OneQueuePairPerPeerHoweverTheyBegin) {
  Side a(device(1)), b(device(2)), c(device(3));
  const std::vector<Side*> sides = {&a, &b, &c};
  for (Side* from : sides)
    for (Side* to : sides)
      if (from != to) from->transport->post_credit(from->open(to->transport->address(), "x"), 1);
  ASSERT_TRUE(drive(sides, [&] { return a.credits == 2 && b.credits == 2 && c.credits == 2; }));
  EXPECT_EQ(queue_pairs_in_kernel(), 3 * 2) << "each of three has two others";
}

TEST_F(VerbsTest, QueuePairsGoWithTheLink) {
  Side a(device(1)), b(device(2));
  const LinkId to_b = a.open(b.transport->address(), "b");
  const LinkId to_a = b.open(a.transport->address(), "a");
  EXPECT_EQ(queue_pairs_in_kernel(), 0) << "before the first post";
  a.transport->post_cell(to_b, {5, 0, 0, 100});
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.cells == 1; }));
  EXPECT_EQ(queue_pairs_in_kernel(), 2);
  a.transport->close(to_b);
  b.transport->close(to_a);
  ASSERT_TRUE(drive({&a, &b}, [] { return queue_pairs_in_kernel() == 0; }));
}

TEST_F(VerbsTest, SeveralNicsShareALink) {
  Options both = device(1);
  both.hca = "=rxe1,rxe2";
  Options wide = device(3);
  wide.hca = "=rxe3,rxe4";
  wide.queue_pairs = 2;
  Side a(both), b(wide);
  const LinkId to_b = a.open(b.transport->address(), "b");
  b.open(a.transport->address(), "a");
  for (uint32_t i = 0; i < 40; ++i) a.transport->post_cell(to_b, {i, i * 4096, i * 4096, 4096});
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.cells == 40; }));
  EXPECT_EQ(queue_pairs_in_kernel(), 2 * 2 * 2);
  EXPECT_NE(a.transport->describe().find("rxe2"), std::string::npos);
}

TEST_F(VerbsTest, QueuesDoNotOverrunWhileTheReceiverSleeps) {
  Side a(device(1)), b(device(2));
  const LinkId to_b = a.open(b.transport->address(), "b");
  b.open(a.transport->address(), "a");
  a.transport->post_credit(to_b, 1);
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.credits == 1; }));
  constexpr uint64_t kMany = 3000;  // more than receives, sends and completions there is room for
  for (uint64_t i = 0; i < kMany; ++i) a.transport->post_credit(to_b, static_cast<uint32_t>(i));
  EXPECT_TRUE(a.transport->busy());
  // b sleeps till its NIC has no receives left.
  uint64_t before = 0;
  int still = 0;
  ASSERT_TRUE(drive({&a}, [&] {
    const uint64_t sent = a.transport->counters().credits_sent;
    still = sent == before ? still + 1 : 0;
    before = sent;
    return still > 3 || !a.transport->busy();
  }));
  EXPECT_LT(before, kMany) << "no room ran out, so nothing was tested";
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.credits == kMany + 1; }));
  EXPECT_EQ(a.downs + b.downs, 0U);
}

TEST_F(VerbsTest, StrangersAreDropped) {
  Side a(device(1)), b(device(2));
  const auto where = Endpoint::decode(a.transport->address());
  ASSERT_TRUE(where);
  Introduction liar;
  liar.nics.resize(1);
  liar.queue_pairs.resize(1);
  for (const wire::Bytes& words :
       {liar.encode(Frame::kHello), wire::Bytes(3), wire::Bytes(100, std::byte{7})}) {
    const auto give_up = net::Deadline::after_s(20);
    Result<UniqueFd> fd = net::connect_to(where->socket, give_up);
    ASSERT_TRUE(fd.ok());
    ASSERT_TRUE(net::send_frame(fd->get(), words, give_up).ok());
    std::byte answer{};
    ASSERT_TRUE(drive({&a}, [&] { return recv(fd->get(), &answer, 1, MSG_DONTWAIT) == 0; }));
  }
  const LinkId to_a = b.open(a.transport->address(), "a");
  a.open(b.transport->address(), "b");
  b.transport->post_credit(to_a, 7);
  ASSERT_TRUE(drive({&a, &b}, [&] { return a.credits == 1; }));
}

/// A process of its own with one side: tells its address, learns the parent's, sends cells.
[[noreturn]] void be_the_peer(int socket, const Options& options) {
  const auto give_up = net::Deadline::after_s(60);
  Side side(options);
  if (!net::send_frame(socket, side.transport->address(), give_up).ok()) _exit(2);
  const Result<wire::Bytes> parent = net::receive_frame(socket, 4096, give_up);
  if (!parent.ok()) _exit(3);
  const LinkId link = side.open(*parent, "parent");
  std::byte word{};
  while (recv(socket, &word, 1, MSG_DONTWAIT) != 0) {
    if (side.credits == side.transport->counters().cells_sent)
      side.transport->post_cell(link, {1, 0, 0, 64 << 10});
    side.transport->progress(side);
  }
  _exit(0);
}

TEST_F(VerbsTest, AProcessThatIsKilledIsNamed) {
  std::array<int, 2> sockets{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(sockets[0]);
    be_the_peer(sockets[1], device(2));
  }
  close(sockets[1]);
  UniqueFd line(sockets[0]);
  const auto give_up = net::Deadline::after_s(60);
  const Result<wire::Bytes> address = net::receive_frame(line.get(), 4096, give_up);
  ASSERT_TRUE(address.ok());
  Side a(device(1));
  const LinkId link = a.open(*address, "rank 5 on node b");
  ASSERT_TRUE(net::send_frame(line.get(), a.transport->address(), give_up).ok());
  uint64_t answered = 0;
  ASSERT_TRUE(drive({&a}, [&] {
    for (; answered < a.cells; ++answered) a.transport->post_credit(link, 1);
    return a.cells > 20;
  }));
  const Clock::time_point killed = Clock::now();
  kill(child, SIGKILL);
  ASSERT_TRUE(drive({&a}, [&] { return a.downs > 0; }));
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(20));
  EXPECT_NE(a.down_why.message().find("rank 5 on node b"), std::string::npos);
  waitpid(child, nullptr, 0);
}

/// Fails the test unless all of `words` are in `text`.
void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << text;
}

/// Traffic between rxe1 and rxe2 until the cable of rxe`cut` is pulled.
void pull_the_cable(int cut, std::vector<std::string> words) {
  Side a(options_for("rxe1")), b(options_for("rxe2"));
  const LinkId to_b = a.open(b.transport->address(), "rank 7 on node b");
  b.open(a.transport->address(), "rank 3 on node a");
  const auto send = [&] { a.transport->post_cell(to_b, {1, 0, 0, 256 << 10}); };
  send();
  ASSERT_TRUE(drive({&a, &b}, [&] {
    if (b.cells == a.transport->counters().cells_sent) send();
    return b.cells > 10;
  }));
  const std::string port = "p" + std::to_string(cut);
  ASSERT_EQ(run("ip link set " + port + " down"), 0);
  for (int i = 0; i < 8; ++i) send();
  const Clock::time_point pulled = Clock::now();
  const bool heard = drive({&a, &b}, [&] { return a.downs > 0 && b.downs > 0; });
  ASSERT_EQ(run("ip link set " + port + " up"), 0);
  ASSERT_TRUE(heard);
  EXPECT_LT(Clock::now() - pulled, std::chrono::seconds(30));
  EXPECT_EQ(a.downs, 1U);
  EXPECT_EQ(b.downs, 1U);
  EXPECT_EQ(a.down_link, to_b);
  EXPECT_EQ(a.down_why.code(), Code::kRemoteError);
  words.insert(words.end(), {"rank 7 on node b", "rail 0 (rxe1 port 1)", "GID"});
  expect_words(a.down_why.message(), words);
  expect_words(b.down_why.message(), {"rank 3 on node a"});
  std::printf("down after the cable of rxe%d was pulled: %s\n", cut, a.down_why.message().c_str());
  std::printf("the other side: %s\n", b.down_why.message().c_str());
  EXPECT_EQ(queue_pairs_in_kernel(), 0) << "late writes are possible";
}

TEST_F(VerbsTest, ACutCableAtTheOtherEndEndsTheLink) {
  pull_the_cable(2, {"retry", "NCCL_IB_RETRY_CNT"});
}

TEST_F(VerbsTest, ACutCableAtThisEndEndsTheLinkAndIsLogged) {
  const std::string file = testing::TempDir() + "/verbs-events";
  log::configure(log::Level::kInfo, file.c_str());
  pull_the_cable(1, {"failed"});
  log::configure(log::Level::kWarn, "");
  std::ifstream stream(file);
  const std::string logged((std::istreambuf_iterator<char>(stream)), {});
  expect_words(logged, {"rail 0 (rxe1 port 1)", "port 1 went down", "check cable"});
}

TEST_F(VerbsTest, NobodyListensAtTheAddress) {
  Side a(device(1));
  transport::Address address;
  {
    Side gone(device(2));
    address = gone.transport->address();
  }
  a.transport->post_credit(a.open(address, "rank 1 on node c"), 1);
  ASSERT_TRUE(drive({&a}, [&] { return a.downs > 0; }));
  expect_words(a.down_why.message(), {"rank 1 on node c", "refused", "firewall"});
  EXPECT_FALSE(a.transport->busy());
}

}  // namespace
}  // namespace railyard::verbs
