// SPDX-License-Identifier: Apache-2.0
//
// The carrier's half of a communicator over a transport that only notes what it is given.
#include "exchange/channel.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace railyard::exchange {
namespace {

class NotingTransport final : public transport::Transport {
 public:
  const char* name() const override { return "noting"; }
  std::string describe() const override { return "nothing"; }
  Status listen(const transport::Area&, const transport::Area&) override { return {}; }
  const transport::Address& address() const override { return address_; }
  Result<transport::LinkId> open(const transport::Address&, const std::string&) override {
    return transport::LinkId(links_++);
  }
  void close(transport::LinkId) override {}
  void post_cell(transport::LinkId, const transport::Cell&) override { ++cells; }
  void post_credit(transport::LinkId, uint32_t tag) override {
    credits.push_back(tag);
    if (on_post_credit) on_post_credit();
  }
  bool progress(transport::Receiver&) override { return false; }
  int event_fd() const override { return -1; }
  bool busy() const override { return false; }
  transport::Counters counters() const override { return {}; }

  int cells = 0;
  std::vector<uint32_t> credits;
  std::function<void()> on_post_credit;

 private:
  uint32_t links_ = 0;
  transport::Address address_;
};

/// Rank 0 of two nodes of two ranks: it sends to rank 2 and relays from there.
class ChannelTest : public testing::Test {
 protected:
  ChannelTest()
      : topology_(make_topology()),
        plan_(SlotPlan::make(topology_, holdings()).take()),
        layout_(topology_, plan_, 0),
        memory_(layout_.bytes() / sizeof(Line) + 1),
        segment_(reinterpret_cast<std::byte*>(memory_.data())),
        health_({"a", "b", "c", "d"}, at<kernels::RankStatus>(segment_, layout_.status(0))) {
    for (uint32_t slot = 0; slot < plan_.slots_per_flow(); ++slot) credit_to_2()[slot] = slot;
    ChannelSetup setup;
    setup.topology = &topology_;
    setup.plan = &plan_;
    setup.layout = &layout_;
    setup.segment = segment_;
    setup.landing = landing_.data();
    setup.addresses.resize(4);
    setup.names = {"a", "b", "c", "d"};
    setup.bells = setup.lives = {-1, -1};
    channel_ = std::make_unique<Channel>(std::move(setup), health_);
    EXPECT_TRUE(channel_->open(transport_).ok());
  }

  static topology::Topology make_topology() {
    std::vector<topology::Place> places(4);
    for (size_t r = 0; r < 4; ++r) places[r].host = r < 2 ? "x" : "y";
    return topology::Topology::build(places).take();
  }
  static std::vector<Holding> holdings() {
    return std::vector<Holding>(4, {0, kPoolBytes, 0, kPoolBytes, 0, 4096});
  }
  uint64_t* credit_to_2() { return at<uint64_t>(segment_, layout_.credit(0, 2)); }
  uint32_t farewell(int local) { return *at<uint32_t>(segment_, layout_.farewell(local)); }
  /// What a kernel does at the end of a cell.
  void push(uint64_t ring, uint64_t ticket, uint32_t slot) {
    *at<kernels::RingEntry>(segment_, ring + ticket * sizeof(kernels::RingEntry)) = {
        (ticket + 1) << 32 | slot, 16};
  }
  void post_to_2() { push(layout_.post_ring(0), 0, plan_.staging_slot(0, 2)); }
  /// The cell from rank 2 to `dst`, which this rank relays, has come.
  void land(int dst) { channel_->on_cell(kFromRank2, plan_.landing_slot(2, dst)); }
  void pull(int dst) {
    push(layout_.release_ring(0, topology_.local_index(dst)), 0, plan_.landing_slot(2, dst));
  }
  // Links are opened to relays first, then to sources.
  static constexpr transport::LinkId kToRank2{0}, kFromRank2{1};
  static constexpr uint64_t kPoolBytes = 64 * 1024;
  struct alignas(128) Line {
    std::byte bytes[128];
  };

  const topology::Topology topology_;
  const SlotPlan plan_;
  const Segment layout_;
  std::vector<Line> memory_;
  std::byte* const segment_;
  std::vector<std::byte> landing_ = std::vector<std::byte>(kPoolBytes);
  Health health_;
  NotingTransport transport_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(ChannelTest, PassesOnWhatIsPostedAndReleased) {
  post_to_2();
  land(1);
  pull(1);
  EXPECT_TRUE(channel_->progress(transport_));
  EXPECT_EQ(transport_.cells, 1);
  EXPECT_EQ(transport_.credits,
            std::vector<uint32_t>{plan_.staging_tag(2, plan_.staging_slot(2, 1))});
}

TEST_F(ChannelTest, FarewellWaitsForACellPostedWhileTheRingsAreServed) {
  land(1);
  pull(1);
  transport_.on_post_credit = [this] {
    post_to_2();
    channel_->say_farewell();
  };
  channel_->progress(transport_);
  EXPECT_EQ(farewell(0), 0U);
  channel_->progress(transport_);
  EXPECT_EQ(transport_.cells, 1);
  EXPECT_EQ(farewell(0), 0U) << "its credit is not back yet";
  channel_->on_credit(kToRank2, plan_.staging_tag(0, plan_.staging_slot(0, 2)));
  channel_->progress(transport_);
  EXPECT_EQ(farewell(0), kSaid);
}

TEST_F(ChannelTest, SourcesLearnThatAMateIsLostWhoeverNoticesFirst) {
  for (const uint32_t before : {0U, kLost}) {
    SCOPED_TRACE(before);
    *at<uint32_t>(segment_, layout_.farewell(1)) = before;
    channel_->on_mate_lost(transport_, 1);
    EXPECT_EQ(transport_.credits, std::vector<uint32_t>{plan_.broken_tag(2, 1)});
    EXPECT_EQ(farewell(1), kLost);
  }
  EXPECT_EQ(*at<uint64_t>(segment_, layout_.credit(0, 1)), kernels::kPoison);
}

TEST_F(ChannelTest, AMateThatSaidFarewellMayLeave) {
  *at<uint32_t>(segment_, layout_.farewell(1)) = kSaid;
  channel_->on_mate_lost(transport_, 1);
  EXPECT_TRUE(transport_.credits.empty());
}

}  // namespace
}  // namespace railyard::exchange
