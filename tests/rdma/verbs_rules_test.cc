// SPDX-License-Identifier: Apache-2.0
//
// The rules of the verbs transport that need no RDMA device: NCCL's grammars and choices, NIC
// placement, and what carriers say to each other.
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "transport/verbs/gid.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/hca_filter.h"
#include "transport/verbs/options.h"
#include "transport/verbs/placement.h"
#include "transport/verbs/verbs_transport.h"

namespace railyard::verbs {
namespace {

struct HcaCase {
  const char* text;
  const char* device;
  int port;
  bool allowed;
};

TEST(HcaFilterTest, FollowsNcclsGrammar) {
  const HcaCase cases[] = {
      {"", "mlx5_0", 1, true},
      {"^", "mlx5_0", 1, false},
      {"mlx5_1", "mlx5_1", 1, true},
      {"mlx5_1", "mlx5_10", 1, true},
      {"mlx5_1", "mlx5_2", 1, false},
      {"=mlx5_1", "mlx5_1", 2, true},
      {"=mlx5_1", "mlx5_10", 1, false},
      {"^mlx5_1", "mlx5_10", 1, false},
      {"^=mlx5_1", "mlx5_10", 1, true},
      {"^=mlx5_1", "mlx5_1", 1, false},
      {"=^mlx5_1", "mlx5_1", 1, false},
      {"mlx5_0:1,mlx5_3:2", "mlx5_0", 1, true},
      {"mlx5_0:1,mlx5_3:2", "mlx5_0", 2, false},
      {"mlx5_0:1,mlx5_3:2", "mlx5_3", 2, true},
      {"mlx5_0:1:7,mlx5_3", "mlx5_3", 9, true},
      {"mlx5_0:2x", "mlx5_0", 2, true},
      {",,mlx5_0,", "mlx5_0", 1, true},
      {":1", "mlx5_0", 1, true},
      {":1,mlx5_0", "mlx5_1", 1, false},
      {" mlx5_0", "mlx5_0", 1, false},
      {"mlx5_0: 1", "mlx5_0", 1, true},
  };
  for (const HcaCase& c : cases)
    EXPECT_EQ(HcaFilter::parse(c.text).allows(c.device, c.port), c.allowed)
        << c.text << " for " << c.device << ":" << c.port;
}

TEST(HcaFilterTest, ReadsAtMost32Entries) {
  std::string list;
  for (int i = 0; i < 40; ++i) list += "nic" + std::to_string(100 + i) + ",";
  const HcaFilter filter = HcaFilter::parse(list);
  EXPECT_TRUE(filter.allows("nic131", 1));
  EXPECT_FALSE(filter.allows("nic132", 1));
}

GidBytes v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}
GidBytes v6(uint8_t first, uint8_t second, uint8_t last) {
  GidBytes gid{};
  gid[0] = first;
  gid[1] = second;
  gid[15] = last;
  return gid;
}
const GidBytes kLinkLocal = v6(0xfe, 0x80, 1);

int choose(const std::vector<GidEntry>& table, int family = AF_INET, int version = 2,
           const std::string& range = "") {
  GidPreference preference;
  preference.family = family;
  preference.roce_version = version;
  preference.range = AddressRange::parse(range, family);
  return choose_roce_gid(table, preference);
}

TEST(GidTest, PrefersTheWantedFamilyAndVersion) {
  const std::vector<GidEntry> usual = {
      {kLinkLocal, 1}, {kLinkLocal, 2}, {v4(10, 0, 0, 1), 1}, {v4(10, 0, 0, 1), 2}};
  EXPECT_EQ(choose(usual), 3);
  EXPECT_EQ(choose(usual, AF_INET, 1), 2);
  EXPECT_EQ(choose(usual, AF_INET6), 0) << "nothing valid: stays";
  const std::vector<GidEntry> rxe = {{kLinkLocal, 2}, {v4(10, 10, 0, 1), 2}, {GidBytes{}, 0}};
  EXPECT_EQ(choose(rxe), 1);
  const std::vector<GidEntry> routed = {
      {kLinkLocal, 1}, {kLinkLocal, 2}, {v6(0xfd, 0, 1), 1}, {v6(0xfd, 0, 1), 2}};
  EXPECT_EQ(choose(routed, AF_INET6), 3);
  EXPECT_EQ(choose(routed, AF_INET), 0) << "no IPv4 address";
}

TEST(GidTest, RangeRestricts) {
  const std::vector<GidEntry> two = {
      {kLinkLocal, 2}, {v4(192, 168, 1, 1), 2}, {v4(10, 0, 0, 1), 2}, {v4(10, 9, 0, 1), 2}};
  EXPECT_EQ(choose(two), 1);
  EXPECT_EQ(choose(two, AF_INET, 2, "10.0.0.0/8"), 2);
  EXPECT_EQ(choose(two, AF_INET, 2, "10.9.0.0/16"), 3);
  EXPECT_EQ(choose(two, AF_INET, 2, "172.16.0.0/12"), 0);
  EXPECT_EQ(choose(two, AF_INET, 2, "no range"), 1);
  EXPECT_EQ(choose(two, AF_INET, 2, "10.9.0.0"), 1) << "without a length it is ignored";
}

TEST(GidTest, KnowsKinds) {
  EXPECT_TRUE(is_link_local(kLinkLocal));
  EXPECT_FALSE(is_link_local(v6(0xfe, 0xc0, 1)));
  EXPECT_EQ(family_of(v4(1, 2, 3, 4)), AF_INET);
  EXPECT_EQ(family_of(kLinkLocal), AF_INET6);
  EXPECT_EQ(text_of(v4(10, 1, 2, 3)), "::ffff:10.1.2.3");
}

PciPlace at(const std::string& path, int numa = 0) { return {path, numa}; }

TEST(PlacementTest, Distances) {
  const PciPlace gpu = at("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
  const PciPlace twin = at("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0");
  const PciPlace cousin =
      at("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:20:00.0/"
         "0000:21:00.0/0000:22:00.0");
  const PciPlace neighbour = at("pci0000:15/0000:15:02.0/0000:30:00.0");
  const PciPlace socket = at("pci0000:40/0000:40:01.0/0000:41:00.0");
  const PciPlace far = at("pci0000:80/0000:80:01.0/0000:81:00.0", 1);
  EXPECT_EQ(distance_between(gpu, gpu), Distance::kLocal);
  EXPECT_EQ(distance_between(gpu, twin), Distance::kSwitch);
  EXPECT_EQ(distance_between(gpu, cousin), Distance::kSwitches);
  EXPECT_EQ(distance_between(gpu, neighbour), Distance::kHostBridge);
  EXPECT_EQ(distance_between(gpu, socket), Distance::kHostBridge);
  EXPECT_EQ(distance_between(gpu, far), Distance::kSystem);
  EXPECT_EQ(distance_between(gpu, at("rxe1", -1)), Distance::kSystem);
}

/// Behind switch `s` of a node with one root per switch, device `d`.
PciPlace behind(int s, int d) {
  const std::string n = std::to_string(s);
  return at("pci0000:" + n + "0/0000:" + n + "0:01.0/0000:" + n + "1:00.0/0000:" + n + "2:0" +
            std::to_string(d) + ".0/0000:" + n + "3:0" + std::to_string(d) + ".0");
}

TEST(PlacementTest, NicsAreSharedOutAmongTheGpusNearThem) {
  // Two switches, each with two GPUs and two NICs.
  const std::vector<PciPlace> nics = {behind(1, 1), behind(1, 2), behind(2, 1), behind(2, 2)};
  GpuPlaces gpus;
  gpus.gpus = {behind(1, 3), behind(1, 4), behind(2, 3), behind(2, 4)};
  for (int gpu = 0; gpu < 4; ++gpu) {
    gpus.self = gpu;
    EXPECT_EQ(choose_nics(nics, gpus), std::vector<int>{gpu});
  }
  // One GPU per switch has both.
  gpus.gpus = {behind(1, 3), behind(2, 3)};
  gpus.self = 1;
  EXPECT_EQ(choose_nics(nics, gpus), (std::vector<int>{2, 3}));
  // More GPUs than NICs share.
  gpus.gpus = {behind(1, 3), behind(1, 4), behind(1, 5), behind(1, 6)};
  gpus.self = 2;
  EXPECT_EQ(choose_nics(nics, gpus), std::vector<int>{0});
  EXPECT_TRUE(choose_nics({}, gpus).empty());
}

TEST(PlacementTest, AGpuThatSysfsLacksIsNearEveryNic) {
  const std::vector<PciPlace> nics = {at("rxe1"), at("rxe2"), at("rxe3"), at("rxe4")};
  GpuPlaces gpus;
  gpus.count = 2;
  gpus.index = 1;
  EXPECT_EQ(choose_nics(nics, gpus), (std::vector<int>{1, 3}));
  gpus.count = 8;
  gpus.index = 6;
  EXPECT_EQ(choose_nics(nics, gpus), std::vector<int>{2});
}

Options from(std::map<std::string, std::string> values) {
  return options_from([&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

TEST(OptionsTest, ReadsNcclsVariables) {
  const Options defaults = from({});
  EXPECT_EQ(defaults.gid_index, -1);
  EXPECT_EQ(defaults.timeout, 20);
  EXPECT_EQ(defaults.retry_count, 7);
  EXPECT_TRUE(defaults.dmabuf);
  EXPECT_EQ(defaults.gdr_level, Distance::kSwitches);
  const Options given = from({{"NCCL_IB_GID_INDEX", "0x3"},
                              {"NCCL_IB_TIMEOUT", "18 s"},
                              {"NCCL_IB_TC", "106"},
                              {"NCCL_IB_SL", "-1"},
                              {"NCCL_IB_DISABLE", ""},
                              {"NCCL_DMABUF_ENABLE", "0"},
                              {"NCCL_NET_GDR_LEVEL", "SYS"},
                              {"NCCL_IB_ADDR_FAMILY", "AF_INET6"},
                              {"RAILYARD_QPS", "0"},
                              {"NCCL_IB_RETRY_CNT", "99"}});
  EXPECT_EQ(given.gid_index, 3);
  EXPECT_EQ(given.timeout, 18);
  EXPECT_EQ(given.traffic_class, 106);
  EXPECT_EQ(given.service_level, 0);
  EXPECT_FALSE(given.disabled);
  EXPECT_FALSE(given.dmabuf);
  EXPECT_EQ(given.gdr_level, Distance::kSystem);
  EXPECT_EQ(given.address_family, AF_INET6);
  EXPECT_EQ(given.queue_pairs, 1U);
  EXPECT_EQ(given.retry_count, 7) << "three bits";
  EXPECT_EQ(from({{"NCCL_NET_GDR_LEVEL", "pix"}}).gdr_level, Distance::kSwitches);
}

Endpoint some_endpoint() {
  Endpoint endpoint;
  endpoint.identity[3] = 7;
  endpoint.key[31] = std::byte{9};
  endpoint.socket = *net::SocketAddress::parse("10.0.0.1", 4711);
  endpoint.nics = 2;
  endpoint.queue_pairs = 4;
  return endpoint;
}

Introduction some_introduction() {
  Introduction self;
  self.peer_key[0] = std::byte{1};
  self.identity[15] = 2;
  self.landing_address = 0x1234567890;
  self.landing_bytes = 64 << 20;
  self.nics = {{"rail 0 (mlx5_0 port 1)", 2, 5, 17, kLinkLocal, 99}};
  self.queue_pairs = {{0x123, 0xabcdef, true, 1, 2, 3}, {0x124, 5, false, 0, 0, 0}};
  return self;
}

TEST(HandshakeTest, EndpointComesBack) {
  const auto again = Endpoint::decode(some_endpoint().encode());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->encode(), some_endpoint().encode());
  EXPECT_EQ(again->socket.text(), "10.0.0.1:4711");
  EXPECT_EQ(queue_pairs_between(*again, some_endpoint()), 8U);
}

TEST(HandshakeTest, IntroductionComesBack) {
  const wire::Bytes bytes = some_introduction().encode(Frame::kHello);
  wire::Reader in(bytes);
  EXPECT_EQ(in.u8(), static_cast<uint8_t>(Frame::kHello));
  const auto again = Introduction::decode(in);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->encode(Frame::kHello), bytes);
  EXPECT_EQ(again->nics[0].name, "rail 0 (mlx5_0 port 1)");
  EXPECT_EQ(again->queue_pairs[1].number, 0x124U);
}

TEST(HandshakeTest, DamagedBytesAreRefusedOrHarmless) {
  const wire::Bytes good = some_introduction().encode(Frame::kHello);
  for (size_t length = 1; length < good.size(); ++length) {
    const std::span<const std::byte> all = good;
    wire::Reader in(all.first(length));
    in.u8();
    EXPECT_FALSE(Introduction::decode(in)) << length;
  }
  const wire::Bytes endpoint = some_endpoint().encode();
  for (size_t length = 0; length < endpoint.size(); ++length)
    EXPECT_FALSE(Endpoint::decode(std::span<const std::byte>(endpoint).first(length))) << length;
  std::mt19937 random(20240601);
  for (int round = 0; round < 20000; ++round) {
    wire::Bytes bad = good;
    for (int i = 0; i < 3; ++i) bad[random() % bad.size()] = static_cast<std::byte>(random());
    wire::Reader in(bad);
    in.u8();
    if (const auto read = Introduction::decode(in)) {
      EXPECT_LE(read->nics.size(), bad.size());
      EXPECT_LE(read->queue_pairs.size(), bad.size());
    }
  }
}

TEST(LibraryTest, AbsenceIsSaidWithARemedy) {
  Options options;
  options.library = "libibverbs-that-is-not-here.so.1";
  const auto made = transport::make_verbs(options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kUnavailable);
  EXPECT_NE(made.status().message().find("libibverbs-that-is-not-here.so.1"), std::string::npos);
  EXPECT_NE(made.status().message().find("install"), std::string::npos);
  EXPECT_EQ(survey(options).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace railyard::verbs
