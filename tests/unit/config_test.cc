// SPDX-License-Identifier: Apache-2.0
//
// The parameter table, NCCL's variables, name lists, interface choice and file templates.
#include "base/config.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file_template.h"
#include "base/interfaces.h"
#include "base/name_list.h"
#include "base/nccl_env.h"

namespace railyard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Config, DefaultsHoldWhereNothingIsSet) {
  const Result<Config> config = parse_config({{"PATH", "/bin"}, {"RAILYARD_CTAS", ""}});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->transport, TransportKind::kAuto);
  EXPECT_EQ(config->comms, CommsMode::kAuto);
  EXPECT_EQ(config->buffer_mb, 64u);
  EXPECT_EQ(config->ctas, 4u);
  EXPECT_EQ(config->join_s, 20u);
  EXPECT_EQ(config->debug, log::Level::kWarn);
  EXPECT_THAT(config->rails, IsEmpty());
  EXPECT_THAT(config->host_ids, IsEmpty());
  EXPECT_EQ(config->stats_file, "");
}

TEST(Config, ReadsEveryKindOfValue) {
  const Result<Config> config = parse_config({{"RAILYARD_TRANSPORT", "TCP"},
                                              {"RAILYARD_COMMS", "all"},
                                              {"RAILYARD_RAILS", "0,0,1"},
                                              {"RAILYARD_BUFFER_MB", "7"},
                                              {"RAILYARD_HOSTID", "a,b"},
                                              {"RAILYARD_DEBUG", "trace"},
                                              {"RAILYARD_STATS", "/tmp/%r"}});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->transport, TransportKind::kTcp);
  EXPECT_EQ(config->comms, CommsMode::kAll);
  EXPECT_THAT(config->rails, ElementsAre(0, 0, 1));
  EXPECT_EQ(config->buffer_mb, 7u);
  EXPECT_THAT(config->host_ids, ElementsAre("a", "b"));
  EXPECT_EQ(config->debug, log::Level::kTrace);
  EXPECT_EQ(config->stats_file, "/tmp/%r");
}

struct BadValue {
  const char *name, *value, *accepted;
};
class BadValues : public testing::TestWithParam<BadValue> {};

TEST_P(BadValues, NameVariableValueAndWhatIsAccepted) {
  const BadValue& bad = GetParam();
  const Result<Config> config = parse_config({{bad.name, bad.value}});
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(config.status().message(), HasSubstr(std::string(bad.name) + "=" + bad.value));
  EXPECT_THAT(config.status().message(), HasSubstr(bad.accepted));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadValues,
    testing::Values(BadValue{"RAILYARD_TRANSPORT", "rdma", "auto, verbs, tcp"},
                    BadValue{"RAILYARD_COMMS", "on", "auto, all, off"},
                    BadValue{"RAILYARD_BUFFER_MB", "0", "1 to 65536"},
                    BadValue{"RAILYARD_BUFFER_MB", "64MB", "1 to 65536"},
                    BadValue{"RAILYARD_BUFFER_MB", "99999999999", "1 to 65536"},
                    BadValue{"RAILYARD_CTAS", "-1", "1 to 64"},
                    BadValue{"RAILYARD_CTAS", " 4", "1 to 64"},
                    BadValue{"RAILYARD_JOIN_S", "1.5", "1 to 3600"},
                    BadValue{"RAILYARD_RAILS", "0,,1", "separated by commas"},
                    BadValue{"RAILYARD_RAILS", "0,x", "separated by commas"},
                    BadValue{"RAILYARD_HOSTID", "a,,b", "separated by commas"},
                    BadValue{"RAILYARD_DEBUG", "loud", "off, warn, info, trace"}));

TEST(Config, UnknownNamesAreToldWithTheNearest) {
  EXPECT_THAT(unknown_parameters({{"RAILYARD_TRANSPROT", "tcp"}, {"RAILYARD_CTAS", "4"}}),
              ElementsAre("RAILYARD_TRANSPROT is set, but railyard has no such parameter; is "
                          "RAILYARD_TRANSPORT meant?"));
  EXPECT_THAT(unknown_parameters({{"RAILYARD_FOO", "1"}, {"RAILYARDS", "1"}}),
              ElementsAre("RAILYARD_FOO is set, but railyard has no such parameter"));
}

TEST(Config, EveryExampleAndDefaultIsAccepted) {
  for (const Parameter& parameter : parameters()) {
    const Result<Config> config = parse_config({{parameter.name, parameter.example}});
    EXPECT_TRUE(config.ok()) << config.status().message();
    EXPECT_THAT(parameter_help(), HasSubstr(parameter.meaning));
    EXPECT_THAT(parameter_table(), HasSubstr(std::string("| `") + parameter.name + "` |"));
  }
}

class NcclFiles : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + "/" + name) << content;
    return folder_ + "/" + name;
  }
  std::string folder_ = testing::TempDir() + "railyard-config-XXXXXX";
};

TEST_F(NcclFiles, EnvironmentBeatsFirstFileBeatsSecond) {
  const std::string first =
      write("first", "A=file\nB=first=x \n#C=no\n D=space\nno equals\nB=late");
  const std::string second = write("second", "B=second\nC=second\nE=0x10 rest");
  const NcclEnv env = NcclEnv::load({{"A", "environment"}}, {first, second, "/nonexistent"});
  EXPECT_EQ(env.text("A"), "environment");
  EXPECT_EQ(env.text("B"), "first=x ");
  EXPECT_EQ(env.text("C"), "second");
  EXPECT_EQ(env.text("D"), "");
  EXPECT_EQ(env.text(" D"), "space");
  EXPECT_EQ(env.number("E", 3), 16);
}

TEST_F(NcclFiles, TheNamedFileIsRead) {
  const std::string named = write("named", "NCCL_IB_TC=106\n");
  EXPECT_EQ(NcclEnv::load({{"NCCL_CONF_FILE", named}}).text("NCCL_IB_TC"), "106");
}

TEST_F(NcclFiles, NumbersAsNcclReadsThem) {
  const NcclEnv env = NcclEnv::load({{"EMPTY", ""},
                                     {"HUGE", "99999999999999999999"},
                                     {"OCTAL", "010"},
                                     {"WORD", "yes"},
                                     {"MINUS", "-2"}},
                                    {});
  EXPECT_EQ(env.number("EMPTY", 7), 7);
  EXPECT_EQ(env.number("UNSET", 7), 7);
  EXPECT_EQ(env.number("HUGE", 7), 7);
  EXPECT_EQ(env.number("OCTAL", 7), 8);
  EXPECT_EQ(env.number("WORD", 7), 0);
  EXPECT_EQ(env.number("MINUS", 7), -2);
}

TEST(NameLists, FollowNcclsGrammar) {
  EXPECT_TRUE(NameList::parse("mlx5_1", true).matches("mlx5_10", 1));
  EXPECT_FALSE(NameList::parse("=mlx5_1", true).matches("mlx5_10", 1));
  EXPECT_FALSE(NameList::parse("^mlx5_1", true).matches("mlx5_10", 1));
  EXPECT_TRUE(NameList::parse("^=mlx5_1", true).matches("mlx5_10", 1));
  EXPECT_TRUE(NameList::parse("a,,b:2", true).matches("b", 2));
  EXPECT_FALSE(NameList::parse("a,b:2", true).matches("b", 1));
  EXPECT_TRUE(NameList::parse("", true).matches("anything", 1));
  EXPECT_FALSE(NameList::parse("^", true).matches("anything", 1));
  EXPECT_TRUE(NameList::parse(":1", true).matches("anything", 2));
  EXPECT_FALSE(NameList::parse("=^a", true).matches("b", 1));
  EXPECT_TRUE(NameList::parse("eth0:1", false).matches("eth0:1"));
}

std::vector<net::Interface> machine() {
  return {{"lo", net::SocketAddress::parse("127.0.0.1", 0).take()},
          {"docker0", net::SocketAddress::parse("172.17.0.1", 0).take()},
          {"eth0", net::SocketAddress::parse("10.0.0.1", 0).take()},
          {"eth0", net::SocketAddress::parse("fd00::1", 0).take()},
          {"ib0", net::SocketAddress::parse("10.1.0.1", 0).take()}};
}

std::string chosen(const std::vector<net::Interface>& interfaces, const Environment& environment) {
  const auto choice = net::choose_interface(interfaces, NcclEnv::load(environment, {}));
  return choice.ok() ? choice->name + " " + choice->address.text() : choice.status().message();
}

TEST(Interfaces, PreferenceAndVariables) {
  EXPECT_EQ(chosen(machine(), {}), "ib0 10.1.0.1:0");
  EXPECT_EQ(chosen(machine(), {{"NCCL_SOCKET_IFNAME", "^ib"}}), "lo 127.0.0.1:0");
  EXPECT_EQ(chosen(machine(), {{"NCCL_SOCKET_IFNAME", "=eth0"}}), "eth0 10.0.0.1:0");
  EXPECT_EQ(chosen(machine(), {{"NCCL_SOCKET_FAMILY", "AF_INET6"}}), "eth0 [fd00::1]:0");
  EXPECT_THAT(chosen(machine(), {{"NCCL_SOCKET_IFNAME", "eth7"}}), HasSubstr("eth7"));
  EXPECT_THAT(chosen(machine(), {{"NCCL_SOCKET_IFNAME", "eth7"}}), HasSubstr("docker0 (IPv4)"));
  auto few = machine();
  few.pop_back();
  EXPECT_EQ(chosen(few, {}), "eth0 10.0.0.1:0");
  few.resize(1);
  EXPECT_EQ(chosen(few, {}), "lo 127.0.0.1:0");
  EXPECT_THAT(chosen({}, {}), HasSubstr("there are: none"));
}

TEST(Interfaces, DataOfDevicesTakeTurns) {
  const auto chosen_for = [](const std::string& names, int device) {
    const auto choice = net::data_interface(machine(), names, device);
    return choice.ok() ? choice->name : choice.status().message();
  };
  EXPECT_EQ(chosen_for("eth,ib", 0), "eth0");
  EXPECT_EQ(chosen_for("eth,ib", 1), "ib0");  // the IPv6 address of eth0 is no second one
  EXPECT_EQ(chosen_for("eth,ib", 2), "eth0");
  EXPECT_EQ(chosen_for("^lo,docker", 3), "ib0");
  EXPECT_THAT(chosen_for("rail", 0), HasSubstr("no network interface fits 'rail'"));
}

TEST(Interfaces, ThisMachineHasOne) {
  const auto interfaces = net::list_interfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status().message();
  EXPECT_FALSE(interfaces->empty());
}

TEST(FileTemplates, PlaceholdersAreReplaced) {
  EXPECT_EQ(expand_file_template("/x/%h.%p.%r%%%q%", {"node", 7, 3}), "/x/node.7.3%%q%");
  EXPECT_EQ(expand_file_template("%r", {"node", 7, -1}), "%r");
}

}  // namespace
}  // namespace railyard
