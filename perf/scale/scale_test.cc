// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cluster.h"
#include "simulator.h"

namespace scale {
namespace {

TEST(Simulator, OneLinkTakesItsTime) {
  Simulator network;
  const int link = network.add_link({10, 5, 2});
  network.add({{link}, 100, 40, 0});
  EXPECT_DOUBLE_EQ(network.run(), 3 * 2 + 10 + 5);
}

TEST(Simulator, CellsOverlapOnSeveralLinks) {
  Simulator network;
  const int first = network.add_link({10, 1, 0}), second = network.add_link({5, 1, 0});
  network.add({{first, second}, 100, 10, 0});
  EXPECT_DOUBLE_EQ(network.run(), 1 + 1 + 20 + 1);  // the slower one never idles
}

TEST(Simulator, AWindowWaitsForCredits) {
  Simulator network;
  const int link = network.add_link({10, 4, 0});
  network.add({{link}, 30, 10, 1});
  EXPECT_DOUBLE_EQ(network.run(), 3 * (1 + 4) + 2 * 4);
}

TEST(Simulator, FlowsShareALink) {
  Simulator network;
  const int link = network.add_link({10, 0, 0});
  network.add({{link}, 50, 10, 0});
  network.add({{link}, 50, 10, 2});
  EXPECT_DOUBLE_EQ(network.run(), 10);
}

Parameters four_by_four(int oversubscription) {
  Parameters p;
  p.nodes = p.gpus = 4;
  p.oversubscription = oversubscription;
  p.link_gbps = 0.1;
  p.nvlink_gbps = 100;
  return p;
}

double ratio(int oversubscription, System over, System under) {
  const auto cluster = Cluster::make(four_by_four(oversubscription));
  return *cluster->bound(over) / *cluster->bound(under);
}

TEST(Cluster, PlainLosesWhatTheSpineLacks) {
  EXPECT_NEAR(ratio(4, System::kPlain, System::kRailyard), 3, 0.01);
  EXPECT_NEAR(ratio(2, System::kPlain, System::kRailyard), 1.5, 0.01);
  EXPECT_NEAR(ratio(1, System::kPlain, System::kRailyard), 1, 0.01);
  EXPECT_NEAR(ratio(4, System::kSenderRelay, System::kRailyard), 1, 0.01);
}

TEST(Cluster, WithoutASpinePlainHasNoWay) {
  const auto cluster = Cluster::make(four_by_four(0));
  for (const bool cell_by_cell : {false, true}) {
    const auto time = [&](System s) {
      return cell_by_cell ? cluster->simulate(s) : cluster->bound(s);
    };
    EXPECT_FALSE(time(System::kPlain));
    EXPECT_TRUE(time(System::kSenderRelay));
    EXPECT_TRUE(time(System::kRailyard));
  }
}

TEST(Cluster, CellByCellAgreesWithTheBusiestLink) {
  for (const int oversubscription : {1, 2, 4}) {
    for (const auto& [nodes, gpus] : {std::pair{4, 4}, {6, 5}, {3, 2}}) {
      Parameters p = four_by_four(oversubscription);
      p.nodes = nodes;
      p.gpus = gpus;
      p.bytes_per_pair = 4 << 20;
      const auto cluster = Cluster::make(p);
      for (const System system : {System::kPlain, System::kSenderRelay, System::kRailyard}) {
        const double bound = *cluster->bound(system), simulated = *cluster->simulate(system);
        EXPECT_NEAR(simulated / bound, 1, 0.1)
            << name_of(system) << " on " << nodes << " x " << gpus << ", 1:" << oversubscription;
      }
    }
  }
}

TEST(Cluster, LinksGrowWithNodesOnly) {
  Parameters p;
  p.nodes = 256;
  const auto cluster = Cluster::make(p);
  EXPECT_LE(cluster->needs().links, 255);
  EXPECT_GT(cluster->needs().links, 0);
}

TEST(Cluster, TellsWhatMemoryLacks) {
  Parameters p;
  p.nodes = 512;
  p.buffer_mb = 1;
  EXPECT_NE(Cluster::make(p)->needs().trouble.find("RAILYARD_BUFFER_MB"), std::string::npos);
}

}  // namespace
}  // namespace scale
