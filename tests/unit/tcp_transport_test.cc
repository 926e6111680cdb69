// SPDX-License-Identifier: Apache-2.0
//
// The tcp transport: the contract of all transports, and what only TCP has: strangers at the door,
// torn streams, sockets that are full. The other side is often played by hand, on a plain socket.
#include "transport/tcp/tcp_transport.h"

#include <sys/socket.h>

#include <new>

#include "transport/tcp/frame.h"
#include "transport_contract.h"

namespace {
thread_local uint64_t allocations = 0;
}  // namespace

// Not inlined: the compiler would take malloc and delete, or new and free, for a mismatch.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace railyard::transport {
namespace {

using tcp::FrameHead;
using tcp::FrameType;

TcpOptions loopback() {
  TcpOptions options;
  options.bind = *net::SocketAddress::parse("127.0.0.1", 0);
  return options;
}

std::unique_ptr<Transport> made(const TcpOptions& options) {
  Result<std::unique_ptr<Transport>> transport = make_tcp(options);
  EXPECT_TRUE(transport.ok()) << transport.status().message();
  return transport.take();
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract,
                         testing::Values(TransportKind{"tcp", [] { return made(loopback()); }}));

constexpr uint64_t kCellBytes = 64 << 10;
constexpr uint32_t kTags = 8;  ///< that are expected

/// One transport, and all that it told its receiver.
class TcpTransport : public testing::Test, public Receiver {
 protected:
  void listen(const TcpOptions& options) {
    transport = made(options);
    for (size_t i = 0; i < staging.size(); ++i) staging[i] = pattern(0, 0, i);
    Area from{staging.data(), 0, staging.size(), -1};
    Area to{landing_memory.data(), 0, landing_memory.size(), -1};
    ASSERT_TRUE(transport->listen(from, to).ok());
  }
  void SetUp() override { listen(loopback()); }

  std::span<std::byte> landing(LinkId, uint32_t tag) override {
    if (tag >= kTags) return {};
    return {&landing_memory[tag * kCellBytes], kCellBytes};
  }
  void on_cell(LinkId, uint32_t tag) override { cells.push_back(tag); }
  void on_credit(LinkId, uint32_t tag) override { credits.push_back(tag); }
  void on_link_down(LinkId, const Status& why) override { downs.push_back(why); }

  /// Works until `done`, woken by the transport alone.
  void drive(const std::function<bool()>& done) {
    while (!done()) {
      pollfd entry{transport->event_fd(), POLLIN, 0};
      ASSERT_GT(poll(&entry, 1, 60'000), 0) << "nothing happens any more";
      transport->progress(*this);
    }
  }
  /// Works as long as there is something to do at once.
  void work() {
    while (readable(transport->event_fd())) {
      if (!transport->progress(*this) && transport->busy()) break;
    }
  }
  /// Works until the other end of `fd` is gone, and whether nothing came from it before.
  bool dropped(int fd) {
    std::byte byte{};
    ssize_t got = 0;
    drive([&] {
      got = recv(fd, &byte, 1, MSG_DONTWAIT);
      return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    });
    return got <= 0;
  }

  std::unique_ptr<Transport> transport;
  std::vector<std::byte> staging = std::vector<std::byte>(kCellBytes);
  std::vector<std::byte> landing_memory = std::vector<std::byte>(kTags * kCellBytes);
  std::vector<uint32_t> cells, credits;
  std::vector<Status> downs;
};

/// A carrier played by hand.
class Puppet {
 public:
  Puppet() : listener_(net::listen_on(loopback().bind).take()) {
    self_.at = listener_.address;
    self_.id = *tcp::random_token();
    self_.secret = *tcp::random_token();
  }
  Address address() const { return self_.encode(); }

  /// A connection to `transport`, as yet without a word.
  static UniqueFd connect(const Transport& transport) {
    const Result<tcp::Endpoint> to = tcp::Endpoint::decode(transport.address());
    Result<UniqueFd> fd = net::connect_to(to->at, net::Deadline::after_s(60));
    EXPECT_TRUE(fd.ok()) << fd.status().message();
    return fd.take();
  }
  tcp::Hello hello(const Transport& transport) const {
    return tcp::encode_hello(tcp::Endpoint::decode(transport.address())->secret, self_.id);
  }
  UniqueFd greet(const Transport& transport) const {
    UniqueFd fd = connect(transport);
    say(fd.get(), hello(transport));
    return fd;
  }
  static void say(int fd, std::span<const std::byte> bytes) {
    const Status sent = net::send_all(fd, bytes, net::Deadline::after_s(60));
    EXPECT_TRUE(sent.ok()) << sent.message();
  }
  static void say(int fd, FrameHead head, std::span<const std::byte> payload = {}) {
    std::vector<std::byte> frame(tcp::kHeadBytes);
    head.encode(frame.data());
    frame.insert(frame.end(), payload.begin(), payload.end());
    say(fd, frame);
  }

  UniqueFd accept() { return net::accept_next(listener_.fd.get()).take(); }
  static bool hear(int fd, std::span<std::byte> bytes) {
    return net::receive_all(fd, bytes, net::Deadline::after_s(60)).ok();
  }
  void close_listener() { listener_.fd.reset(); }

 private:
  net::Listener listener_;
  tcp::Endpoint self_;
};

std::vector<std::byte> payload_of(size_t bytes, uint64_t sequence) {
  std::vector<std::byte> payload(bytes);
  for (size_t i = 0; i < bytes; ++i) payload[i] = pattern(1, sequence, i);
  return payload;
}

TEST_F(TcpTransport, NeedsAnInterfaceAndHostMemory) {
  TcpOptions anywhere;
  EXPECT_EQ(make_tcp(anywhere).status().code(), Code::kInvalidArgument);
  anywhere.bind = *net::SocketAddress::parse("0.0.0.0", 0);
  EXPECT_EQ(make_tcp(anywhere).status().code(), Code::kInvalidArgument);
  const auto other = made(loopback());
  EXPECT_EQ(other->listen({}, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(transport->describe().find("tcp at 127.0.0.1:"), 0U);
}

TEST_F(TcpTransport, ConnectsAtTheFirstPost) {
  Puppet puppet;
  const LinkId link = *transport->open(puppet.address(), "puppet");
  work();
  EXPECT_FALSE(puppet.accept().valid());
  transport->post_credit(link, 5);
  EXPECT_FALSE(puppet.accept().valid());
  drive([&] { return !transport->busy(); });
  UniqueFd fd = puppet.accept();
  ASSERT_TRUE(fd.valid());
  std::array<std::byte, tcp::kHelloBytes + tcp::kHeadBytes> heard;
  ASSERT_TRUE(Puppet::hear(fd.get(), heard));
  EXPECT_EQ(FrameHead::decode(&heard[tcp::kHelloBytes]).tag, 5U);
}

TEST_F(TcpTransport, NeverPostedToNeverConnects) {
  Puppet puppet;
  transport->close(*transport->open(puppet.address(), "puppet"));
  work();
  EXPECT_FALSE(puppet.accept().valid());
  EXPECT_FALSE(transport->busy());
}

TEST_F(TcpTransport, ReadsWhileItCannotWriteAndCreditsOvertakeCells) {
  constexpr uint32_t kPosted = 2000;  // far more than sockets hold
  Puppet puppet;
  const LinkId link = *transport->open(puppet.address(), "puppet");
  for (uint32_t i = 0; i < kPosted; ++i) transport->post_cell(link, {i, 0, 0, kCellBytes});
  work();
  EXPECT_TRUE(transport->busy());
  UniqueFd in = puppet.greet(*transport);
  for (uint32_t tag = 0; tag < kTags; ++tag) {
    Puppet::say(in.get(), {FrameType::kCell, tag, 1000}, payload_of(1000, tag));
  }
  drive([&] { return cells.size() == kTags; });
  EXPECT_FALSE(readable(transport->event_fd())) << "it is called though the socket is full";
  const uint64_t sent = transport->counters().cells_sent;
  EXPECT_LT(sent, kPosted);
  for (uint32_t tag = 0; tag < 3; ++tag) transport->post_credit(link, tag);

  UniqueFd out = puppet.accept();
  ASSERT_TRUE(out.valid());
  std::thread reader([&] {
    std::array<std::byte, tcp::kHelloBytes> hello;
    ASSERT_TRUE(Puppet::hear(out.get(), hello));
    std::vector<std::byte> body(kCellBytes);
    uint64_t heard = 0, credits_heard = 0, last_credit = 0;
    while (heard < kPosted) {
      std::array<std::byte, tcp::kHeadBytes> bytes;
      ASSERT_TRUE(Puppet::hear(out.get(), bytes));
      const FrameHead head = FrameHead::decode(bytes.data());
      if (head.type == FrameType::kCredit) {
        ASSERT_EQ(head.tag, credits_heard++);
        last_credit = heard;
        continue;
      }
      ASSERT_EQ(head.tag, heard++);
      ASSERT_EQ(head.bytes, kCellBytes);
      ASSERT_TRUE(Puppet::hear(out.get(), body));
      ASSERT_EQ(std::memcmp(body.data(), staging.data(), kCellBytes), 0);
    }
    EXPECT_EQ(credits_heard, 3U);
    EXPECT_LE(last_credit, sent + 1) << "credits waited behind cells not begun";
  });
  drive([&] { return !transport->busy(); });
  reader.join();
  EXPECT_TRUE(downs.empty());
}

TEST_F(TcpTransport, StrangersAreDroppedWithoutHarm) {
  std::mt19937_64 random(seed_of_run());
  Puppet friendly;
  ASSERT_TRUE(transport->open(friendly.address(), "friendly").ok());
  UniqueFd in = friendly.greet(*transport);
  for (int i = 0; i < 40; ++i) {
    std::vector<std::byte> words(tcp::kHelloBytes + random() % 100);
    const tcp::Hello good = friendly.hello(*transport);
    if (i % 2 == 0) {  // everything right but for one bit of mark, version or secret
      std::copy(good.begin(), good.end(), words.begin());
      words[random() % 22] ^= static_cast<std::byte>(1U << (random() % 8));
    } else {
      for (std::byte& word : words) word = static_cast<std::byte>(random());
    }
    UniqueFd stranger = Puppet::connect(*transport);
    Puppet::say(stranger.get(), words);
    EXPECT_TRUE(dropped(stranger.get()));
    Puppet::say(in.get(), {FrameType::kCredit, 1, 0});
  }
  drive([&] { return credits.size() == 40; });
  EXPECT_TRUE(downs.empty());
}

TEST_F(TcpTransport, WhoSaysTooLittleIsDroppedInTime) {
  TcpOptions options = loopback();
  options.prove_ms = 50;
  options.max_unproven = 2;
  listen(options);
  Puppet puppet;
  ASSERT_TRUE(transport->open(puppet.address(), "puppet").ok());
  const tcp::Hello hello = puppet.hello(*transport);
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 5; ++i) {
    slow.push_back(Puppet::connect(*transport));
    if (i % 2 == 0) Puppet::say(slow.back().get(), std::span(hello).first(37));
  }
  // Waits behind them in the queue of the listener, and is not lost.
  UniqueFd in = puppet.greet(*transport);
  Puppet::say(in.get(), {FrameType::kCredit, 3, 0});
  for (UniqueFd& fd : slow) EXPECT_TRUE(dropped(fd.get()));
  drive([&] { return credits.size() == 1; });
  work();
  EXPECT_FALSE(readable(transport->event_fd()));
}

TEST_F(TcpTransport, ConnectionsAreHeldUnreadUntilTheirLinkIsOpened) {
  TcpOptions options = loopback();
  options.max_held = 1;
  listen(options);
  Puppet early, late;
  UniqueFd in = early.greet(*transport);
  Puppet::say(in.get(), {FrameType::kCredit, 7, 0});
  Puppet::say(in.get(), {FrameType::kCell, 2, 100}, payload_of(100, 9));
  work();
  UniqueFd too_many = late.greet(*transport);
  EXPECT_TRUE(dropped(too_many.get()));
  EXPECT_TRUE(credits.empty());
  EXPECT_FALSE(readable(transport->event_fd()));
  ASSERT_TRUE(transport->open(early.address(), "early").ok());
  drive([&] { return cells.size() == 1; });
  EXPECT_EQ(credits, std::vector<uint32_t>{7});
  // There is room again.
  too_many = late.greet(*transport);
  Puppet::say(too_many.get(), {FrameType::kCredit, 1, 0});
  work();
  ASSERT_TRUE(transport->open(late.address(), "late").ok());
  drive([&] { return credits.size() == 2; });
}

TEST_F(TcpTransport, AHeldConnectionThatBreaksIsForgotten) {
  Puppet puppet;
  UniqueFd in = puppet.greet(*transport);
  work();
  const linger at_once{1, 0};
  setsockopt(in.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  in.reset();
  work();
  EXPECT_FALSE(readable(transport->event_fd()));
  ASSERT_TRUE(transport->open(puppet.address(), "puppet").ok());
  work();
  EXPECT_TRUE(downs.empty());
}

/// Tests that begin with an open link and an accepted connection of the puppet.
class TcpStream : public TcpTransport {
 protected:
  void SetUp() override {
    TcpTransport::SetUp();
    link = *transport->open(puppet.address(), "rank 5 on node b");
    in = puppet.greet(*transport);
    work();
  }
  void expect_down(const std::string& fault) {
    drive([&] { return !downs.empty(); });
    ASSERT_EQ(downs.size(), 1U);
    EXPECT_EQ(downs[0].code(), Code::kRemoteError);
    EXPECT_NE(downs[0].message().find("rank 5 on node b"), std::string::npos);
    EXPECT_NE(downs[0].message().find(fault), std::string::npos) << downs[0].message();
    work();
    EXPECT_FALSE(readable(transport->event_fd()));
  }
  Puppet puppet;
  LinkId link{};
  UniqueFd in;
};

TEST_F(TcpStream, FramesArriveHoweverTheStreamIsTorn) {
  std::mt19937_64 random(seed_of_run());
  std::vector<std::byte> stream;
  std::vector<size_t> sizes;
  std::vector<uint32_t> wanted, credited;
  for (uint32_t i = 0; i < kTags; ++i) {
    sizes.push_back(i == 0 ? 0 : i == 1 ? kCellBytes : random() % (kCellBytes >> random() % 14));
    const uint32_t tag = i % 3 == 2 ? kTags + i : i;  // every third for a tag nobody expects
    (tag == i ? wanted : credited).push_back(tag);
    const auto payload = payload_of(sizes[i], i);
    stream.resize(stream.size() + tcp::kHeadBytes);
    FrameHead{FrameType::kCell, tag, static_cast<uint32_t>(sizes[i])}.encode(
        stream.data() + stream.size() - tcp::kHeadBytes);
    stream.insert(stream.end(), payload.begin(), payload.end());
    if (tag == i) continue;
    stream.resize(stream.size() + tcp::kHeadBytes);
    FrameHead{FrameType::kCredit, tag, 0}.encode(stream.data() + stream.size() - tcp::kHeadBytes);
  }
  for (size_t at = 0; at < stream.size();) {
    const size_t piece = std::min<size_t>(stream.size() - at, 1 + random() % (1 << random() % 15));
    Puppet::say(in.get(), std::span(stream).subspan(at, piece));
    at += piece;
    work();
  }
  drive([&] { return credits.size() == credited.size() && cells.size() == wanted.size(); });
  EXPECT_EQ(cells, wanted);
  EXPECT_EQ(credits, credited);
  EXPECT_EQ(transport->counters().cells_dropped, credited.size());
  for (uint32_t tag : wanted) {
    for (size_t i = 0; i < sizes[tag]; ++i) {
      ASSERT_EQ(landing_memory[tag * kCellBytes + i], pattern(1, tag, i)) << tag << " " << i;
    }
  }
}

TEST_F(TcpStream, TheEndWithoutAGoodbyeEndsTheLink) {
  in.reset();
  expect_down("without a goodbye");
}

TEST_F(TcpStream, AResetInTheMiddleOfACellEndsTheLink) {
  Puppet::say(in.get(), {FrameType::kCell, 0, 1000}, payload_of(500, 0));
  work();
  const linger at_once{1, 0};
  setsockopt(in.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  in.reset();
  expect_down("reset");
  EXPECT_TRUE(cells.empty());
}

TEST_F(TcpStream, ACellLargerThanItsSlotEndsTheLink) {
  Puppet::say(in.get(), {FrameType::kCell, 0, kCellBytes + 1});
  expect_down("65537 bytes for a slot of 65536");
}

TEST_F(TcpStream, AnUnknownFrameEndsTheLink) {
  Puppet::say(in.get(), {static_cast<FrameType>(77), 0, 0});
  expect_down("unknown type");
}

TEST_F(TcpStream, ATagOutOfRangeEndsTheLink) {
  Puppet::say(in.get(), {FrameType::kCredit, kMaxTag + 1, 0});
  expect_down("no sense");
}

TEST_F(TcpStream, NobodyListening) {
  Puppet other;
  const LinkId gone = *transport->open(other.address(), "rank 5 on node b");
  other.close_listener();
  transport->post_credit(gone, 1);
  expect_down("refused");
  EXPECT_FALSE(transport->busy());
}

TEST_F(TcpStream, AnswersFromSomethingElseEndTheLink) {
  Puppet other;
  const LinkId strange = *transport->open(other.address(), "rank 5 on node b");
  transport->post_credit(strange, 1);
  drive([&] { return !transport->busy(); });
  UniqueFd out = other.accept();
  Puppet::say(out.get(), std::as_bytes(std::span("220 ready", 9)));
  expect_down("other than railyard");
}

TEST_F(TcpStream, AClosedLinkLeavesLandingMemoryAlone) {
  const auto payload = payload_of(1000, 0);
  Puppet::say(in.get(), {FrameType::kCell, 0, 1000}, std::span(payload).first(500));
  work();
  EXPECT_EQ(landing_memory[499], pattern(1, 0, 499));
  transport->close(link);
  Puppet::say(in.get(), std::span(payload).subspan(500));
  EXPECT_TRUE(dropped(in.get()));
  EXPECT_EQ(landing_memory[700], std::byte{0});
  EXPECT_TRUE(cells.empty());
  EXPECT_TRUE(downs.empty());
}

TEST_F(TcpStream, LateCreditsForAClosedLinkHurtNobody) {
  transport->close(link);
  for (uint32_t i = 0; i < 100; ++i) Puppet::say(in.get(), {FrameType::kCredit, 1, 0});
  UniqueFd again = puppet.greet(*transport);
  Puppet::say(again.get(), {FrameType::kCredit, 1, 0});
  Puppet::say(in.get(), {FrameType::kGoodbye, 0, 0});
  EXPECT_TRUE(dropped(in.get()));
  work();
  EXPECT_TRUE(credits.empty());
  // The link may come back; the connection then serves it.
  ASSERT_NE(*transport->open(puppet.address(), "puppet"), link);
  Puppet::say(again.get(), {FrameType::kCredit, 6, 0});
  drive([&] { return !credits.empty(); });
  EXPECT_EQ(credits, std::vector<uint32_t>{6});
}

/// The peer drops the connection it was sent to, but says goodbye on its own.
TEST_F(TcpStream, AGoodbyeBehindMuchDataIsWaitedFor) {
  transport->post_credit(link, 1);
  drive([&] { return !transport->busy(); });
  UniqueFd out = puppet.accept();
  std::array<std::byte, tcp::kHelloBytes + tcp::kHeadBytes> heard;
  ASSERT_TRUE(Puppet::hear(out.get(), heard));
  out.reset();
  work();
  EXPECT_TRUE(downs.empty());
  Puppet::say(in.get(), {FrameType::kCell, 0, 1000}, payload_of(1000, 0));
  Puppet::say(in.get(), {FrameType::kGoodbye, 0, 0});
  EXPECT_TRUE(dropped(in.get()));
  EXPECT_EQ(cells.size(), 1U);
  EXPECT_TRUE(downs.empty());
}

TEST_F(TcpStream, AGoodbyeThatNeverComesIsNotWaitedForForever) {
  transport->post_credit(link, 1);
  drive([&] { return !transport->busy(); });
  puppet.accept().reset();
  expect_down("at 127.0.0.1");
}

TEST_P(TransportContract, AllocatesNothingOnceWarm) {
  make(2);
  open_all();
  exchange(0, 1, 300);
  carriers[0]->flows[1].to_send += 300;
  carriers[1]->flows[0].to_send += 300;
  const uint64_t before = allocations;
  while (!carriers[0]->complete() || !carriers[1]->complete()) {
    for (auto& carrier : carriers) carrier->step();
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace railyard::transport
