// SPDX-License-Identifier: Apache-2.0
//
// Meetings of ranks: rounds, missing and lost ranks, and visitors that do not belong.
#include <poll.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/meeting_seat.h"
#include "comm/meeting_server.h"
#include "comm/meeting_wire.h"

namespace railyard::comm {
namespace {

using net::Deadline;
using testing::HasSubstr;

constexpr int64_t kPatience = 60'000;  ///< only a hang takes that long

wire::Bytes part_of(int rank, int round) {
  wire::Writer out;
  out.text("rank " + std::to_string(rank) + " round " + std::to_string(round));
  return out.take();
}

class Meetings : public testing::Test {
 protected:
  void open(MeetingServerOptions options = {kPatience, kPatience, kPatience}) {
    auto started = MeetingServer::start(net::SocketAddress::parse("127.0.0.1", 0).take(), options);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = started.take();
    point_ = server_->new_point().take();
  }
  MeetingSeat seat(int rank, int ranks) { return seat_at(point_, rank, ranks); }
  static MeetingSeat seat_at(const MeetingPoint& point, int rank, int ranks) {
    auto seat = MeetingSeat::take(point, rank, ranks, Deadline::after_ms(kPatience));
    EXPECT_TRUE(seat.ok()) << seat.status().message();
    return seat.take();
  }
  UniqueFd visitor() {
    return net::connect_to(point_.address, Deadline::after_ms(kPatience)).take();
  }
  /// Waits until the server has closed its end.
  static void expect_dropped(const UniqueFd& fd) {
    std::byte one[1];
    const Status status = net::receive_all(fd.get(), one, Deadline::after_ms(kPatience));
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), testing::Not(HasSubstr("in time")));
  }
  static void attend(MeetingSeat& seat, int rank, int ranks, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const auto parts = seat.round(part_of(rank, round), Deadline::after_ms(kPatience));
      ASSERT_TRUE(parts.ok()) << parts.status().message();
      ASSERT_EQ(parts->size(), static_cast<size_t>(ranks));
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ((*parts)[static_cast<size_t>(r)], part_of(r, round));
      }
    }
  }
  /// A whole meeting at `point`, ranks coming in random order.
  static void hold(const MeetingPoint& point, int ranks, int rounds, unsigned seed) {
    std::vector<int> order(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) order[static_cast<size_t>(r)] = r;
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    std::vector<std::thread> threads;
    for (const int rank : order) {
      threads.emplace_back([=] {
        MeetingSeat mine = seat_at(point, rank, ranks);
        attend(mine, rank, ranks, rounds);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::unique_ptr<MeetingServer> server_;
  MeetingPoint point_;
};

TEST_F(Meetings, EveryRankGetsEverybodysParts) {
  open();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  hold(point_, 1, 2, seed);
  hold(server_->new_point().take(), 7, 4, seed);
}

TEST_F(Meetings, SeveralAtOnceDoNotMix) {
  open();
  const MeetingPoint other = point_.child(0), third = point_.child(1);
  EXPECT_NE(other.meeting, third.meeting);
  EXPECT_NE(other.meeting, point_.meeting);
  std::thread a([&] { hold(point_, 4, 3, 1); }), b([&] { hold(other, 5, 3, 2); });
  hold(third, 4, 3, 3);
  a.join();
  b.join();
}

TEST_F(Meetings, AServerLetsInWhoeverHasOneOfItsKeys) {
  open();
  MeetingPoint other = point_;
  other.key = make_secret().take();
  MeetingSeat stranger = seat_at(other, 0, 1);
  EXPECT_FALSE(stranger.round(part_of(0, 0), Deadline::after_ms(kPatience)).ok());
  server_->admit(other.key);
  server_->admit(other.key);
  hold(other, 3, 2, 1);
  hold(server_->new_point().take(), 3, 2, 2);
}

TEST_F(Meetings, ASeatIsTakenAsSoonAsThereIsAServer) {
  open();
  const MeetingPoint point = point_;
  server_.reset();
  EXPECT_FALSE(MeetingSeat::take(point, 0, 1, Deadline::after_ms(1)).ok());
  std::thread early([&] {
    MeetingSeat mine = seat_at(point, 0, 1);
    attend(mine, 0, 1, 2);
  });
  const auto started =
      MeetingServer::start(point.address, {kPatience, kPatience, kPatience, point.key});
  ASSERT_TRUE(started.ok()) << started.status().message();
  early.join();
}

TEST_F(Meetings, LargePartsAndSlowReaders) {
  open();
  MeetingSeat a = seat(0, 2), b = seat(1, 2);
  const wire::Bytes large(kMaxPartBytes, std::byte{7});
  std::thread slow([&] {
    const auto parts = b.round(large, Deadline::after_ms(kPatience));
    ASSERT_TRUE(parts.ok()) << parts.status().message();
    EXPECT_EQ((*parts)[0], large);
  });
  const auto parts = a.round(large, Deadline::after_ms(kPatience));
  slow.join();
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  EXPECT_FALSE(a.round(wire::Bytes(kMaxPartBytes + 1), Deadline::after_ms(kPatience)).ok());
}

TEST_F(Meetings, MissingRanksAreNamedToAllPresent) {
  open({50, kPatience, kPatience});
  MeetingSeat a = seat(0, 5), c = seat(2, 5);
  MeetingSeat idle = seat(4, 5);  // comes, but says nothing
  std::thread other([&] {
    const auto parts = c.round(part_of(2, 0), Deadline::after_ms(kPatience));
    ASSERT_FALSE(parts.ok());
    EXPECT_TRUE(c.failed_for_all());
    EXPECT_THAT(parts.status().message(), HasSubstr("ranks 1, 3 and 4 did not come in time"));
  });
  const auto parts = a.round(part_of(0, 0), Deadline::after_ms(kPatience));
  other.join();
  ASSERT_FALSE(parts.ok());
  EXPECT_THAT(parts.status().message(), HasSubstr("ranks 1, 3 and 4 did not come in time"));

  MeetingSeat late = seat(1, 5);
  const auto told = late.round(part_of(1, 0), Deadline::after_ms(kPatience));
  ASSERT_FALSE(told.ok());
  EXPECT_THAT(told.status().message(), HasSubstr("came too late"));
}

TEST_F(Meetings, WhoComesAfterAllHaveLeftAFailedMeetingIsTold) {
  open({50, kPatience, kPatience});
  {
    MeetingSeat only = seat(0, 2);
    EXPECT_FALSE(only.round(part_of(0, 0), Deadline::after_ms(kPatience)).ok());
  }
  MeetingSeat late = seat(1, 2);
  const auto told = late.round(part_of(1, 0), Deadline::after_ms(kPatience));
  ASSERT_FALSE(told.ok());
  EXPECT_THAT(told.status().message(), HasSubstr("came too late"));
}

TEST_F(Meetings, ARankThatDiesIsNamed) {
  open();
  MeetingSeat a = seat(0, 3), b = seat(1, 3);
  auto c = std::make_unique<MeetingSeat>(seat(2, 3));
  std::thread second([&] { attend(b, 1, 3, 1); });
  std::thread third([&] { attend(*c, 2, 3, 1); });
  attend(a, 0, 3, 1);
  second.join();
  third.join();
  c.reset();
  std::thread waiting([&] {
    const auto parts = b.round(part_of(1, 1), Deadline::after_ms(kPatience));
    ASSERT_FALSE(parts.ok());
    EXPECT_THAT(parts.status().message(), HasSubstr("connection to rank 2 was lost"));
  });
  const auto parts = a.round(part_of(0, 1), Deadline::after_ms(kPatience));
  waiting.join();
  ASSERT_FALSE(parts.ok());
  EXPECT_THAT(parts.status().message(), HasSubstr("connection to rank 2 was lost"));
}

TEST_F(Meetings, ARankThatStallsLaterIsNamed) {
  open({kPatience, 50, kPatience});
  MeetingSeat a = seat(0, 2), b = seat(1, 2);
  std::thread second([&] { attend(b, 1, 2, 1); });
  attend(a, 0, 2, 1);
  second.join();
  const auto parts = a.round(part_of(0, 1), Deadline::after_ms(kPatience));
  ASSERT_FALSE(parts.ok());
  EXPECT_THAT(parts.status().message(), HasSubstr("rank 1 did not come in time"));
}

TEST_F(Meetings, AServerThatGoesIsNoAnswer) {
  open();
  MeetingSeat a = seat(0, 2);
  std::thread closing([&] { server_.reset(); });
  const auto parts = a.round(part_of(0, 0), Deadline::after_ms(kPatience));
  closing.join();
  ASSERT_FALSE(parts.ok());
  EXPECT_FALSE(a.failed_for_all());
}

TEST_F(Meetings, StrangersAreDropped) {
  open();
  Hello hello;
  hello.key = point_.key;
  hello.meeting = point_.meeting;
  hello.ranks = 2;
  const auto says = [&](const wire::Bytes& bytes) {
    UniqueFd fd = visitor();
    EXPECT_TRUE(net::send_all(fd.get(), bytes, Deadline::after_ms(kPatience)).ok());
    expect_dropped(fd);
  };
  Hello wrong_key = hello;
  wrong_key.key[3] ^= std::byte{1};
  says(wrong_key.encode());
  Hello wrong_rank = hello;
  wrong_rank.rank = 2;
  says(wrong_rank.encode());
  Hello absurd = hello;
  absurd.ranks = 0xffffffff;
  says(absurd.encode());
  says(wire::Bytes(100, std::byte{'G'}));

  MeetingSeat a = seat(0, 2);
  UniqueFd loud = visitor();  // a rank whose part is too long
  wire::Writer out;
  Hello one = hello;
  one.rank = 1;
  one.meeting = server_->new_point().take().meeting;
  out.raw(one.encode());
  out.u32(kMaxPartBytes + 1);
  EXPECT_TRUE(net::send_all(loud.get(), out.bytes(), Deadline::after_ms(kPatience)).ok());
  expect_dropped(loud);

  std::thread first([&] { attend(a, 0, 2, 1); });
  MeetingSeat b = seat(1, 2);
  attend(b, 1, 2, 1);
  first.join();
}

TEST_F(Meetings, TheSecondComingOfARankIsDropped) {
  open();
  MeetingSeat a = seat(0, 2);
  // Seats are taken in the order of arrival at the server; a part that has been answered proves it.
  Hello again;
  again.key = point_.key;
  again.meeting = point_.meeting;
  again.ranks = 2;
  MeetingSeat b = seat(1, 2);
  std::thread second([&] { attend(b, 1, 2, 1); });
  attend(a, 0, 2, 1);
  second.join();
  UniqueFd fd = visitor();
  EXPECT_TRUE(net::send_all(fd.get(), again.encode(), Deadline::after_ms(kPatience)).ok());
  expect_dropped(fd);
  std::thread third([&] { attend(b, 1, 2, 1); });
  attend(a, 0, 2, 1);
  third.join();
}

TEST_F(Meetings, OtherVersionsAreRefusedByName) {
  open();
  UniqueFd fd = visitor();
  Hello hello;
  hello.version = kProtocolVersion + 41;
  ASSERT_TRUE(net::send_all(fd.get(), hello.encode(), Deadline::after_ms(kPatience)).ok());
  const auto frame = net::receive_frame(fd.get(), 1000, Deadline::after_ms(kPatience));
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  const auto answer = Answer::decode(*frame);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, Answer::Kind::kOtherVersion);
  EXPECT_EQ(answer->version, kProtocolVersion);
}

TEST_F(Meetings, SilentVisitorsAreDroppedAndHarmNobody) {
  open({kPatience, kPatience, 50});
  const UniqueFd silent = visitor(), half = visitor();
  Hello hello;
  hello.key = point_.key;
  const wire::Bytes bytes = hello.encode();
  ASSERT_TRUE(net::send_all(half.get(), std::span(bytes).first(20), Deadline::never()).ok());
  hold(point_, 3, 2, 1);
  expect_dropped(silent);
  expect_dropped(half);
}

TEST_F(Meetings, RandomBytesDoNoHarm) {
  open();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Hello hello;
  hello.key = point_.key;
  hello.meeting = server_->new_point().take().meeting;
  hello.ranks = 3;
  for (int round = 0; round < 300; ++round) {
    UniqueFd fd = visitor();
    wire::Bytes bytes = hello.encode();
    bytes.resize(bytes.size() + random() % 200);
    for (size_t flips = random() % 20; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    EXPECT_TRUE(net::send_all(fd.get(), bytes, Deadline::after_ms(kPatience)).ok());
  }
  hold(point_, 4, 3, seed);
}

TEST_F(Meetings, SlowHellosAreUnderstoodBytewise) {
  open();
  wire::Writer all;
  Hello hello;
  hello.key = point_.key;
  hello.meeting = point_.meeting;
  hello.ranks = 1;
  all.raw(hello.encode());
  all.blob(part_of(0, 0));
  const UniqueFd fd = visitor();
  net::set_no_delay(fd.get());
  for (const std::byte b : all.bytes()) {
    ASSERT_TRUE(net::send_all(fd.get(), std::span(&b, 1), Deadline::after_ms(kPatience)).ok());
  }
  const auto frame = net::receive_frame(fd.get(), 1000, Deadline::after_ms(kPatience));
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  const auto answer = Answer::decode(*frame);
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->parts.size(), 1u);
  EXPECT_EQ(answer->parts[0], part_of(0, 0));
}

TEST(Marks, TravelInAnIdAndAreRecognised) {
  MeetingPoint point{net::SocketAddress::parse("fd00::7", 99).take(), make_secret().take(),
                     make_secret().take()};
  auto bytes = encode_mark(point);
  const auto mark = decode_mark(bytes);
  ASSERT_TRUE(mark && mark->point);
  EXPECT_EQ(mark->point->address.text(), "[fd00::7]:99");
  EXPECT_EQ(mark->point->key, point.key);
  EXPECT_EQ(mark->point->meeting, point.meeting);
  bytes[8] = std::byte{77};
  EXPECT_EQ(decode_mark(bytes)->version, 77u);
  EXPECT_FALSE(decode_mark(bytes)->point);
  EXPECT_FALSE(decode_mark(std::array<std::byte, 64>{}));
  EXPECT_FALSE(decode_mark(std::span(bytes).first(10)));
}

TEST(Answers, NonsenseIsRefused) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Answer answer;
  answer.ranks = {1, 2};
  answer.parts = {part_of(0, 0), part_of(1, 0)};
  const wire::Bytes good = answer.encode_frame();
  ASSERT_TRUE(Answer::decode(std::span(good).subspan(4)));
  for (int round = 0; round < 3000; ++round) {
    wire::Bytes bytes(good.begin() + 4, good.end());
    for (size_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    Answer::decode(bytes);
  }
}

TEST(RankLists, ReadWell) {
  const std::vector<uint32_t> ranks = {0, 1,  2,  3,  4,  5,  6,  7,  8,
                                       9, 10, 11, 12, 13, 14, 15, 16, 17};
  EXPECT_EQ(rank_list(std::span(ranks).first(1)), "rank 0");
  EXPECT_EQ(rank_list(std::span(ranks).first(3)), "ranks 0, 1 and 2");
  EXPECT_THAT(rank_list(ranks), HasSubstr("15 and 2 more"));
}

}  // namespace
}  // namespace railyard::comm
