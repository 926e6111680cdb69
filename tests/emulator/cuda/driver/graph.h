// SPDX-License-Identifier: Apache-2.0
//
// Graphs: work with dependencies that can be launched again and again.
//
// Nodes are added after what they depend on, so the order in which they were added is one in which
// they may run. An executable graph splits them into lanes, chains of nodes one after another: the
// first lane runs on the stream of the launch, each further one on a thread of its own, so that
// branches run at the same time. Launches of one executable graph follow one another, on whichever
// streams they are.
//
// Events: a record node records, and a wait node looks for the last record, when the graph is
// launched, in the order of the nodes.
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <cuda.h>

#include "context.h"
#include "event.h"
#include "user_object.h"

namespace railyard::emulator {

struct Node {
  CUgraphNodeType type;
  std::vector<std::shared_ptr<Node>> after;
  Work work;                     ///< none: there is nothing to do
  std::shared_ptr<Event> event;  ///< of record and wait nodes
  CUgraphNode handle = nullptr;
};
using NodePtr = std::shared_ptr<Node>;

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  NodePtr add(Node node);
  std::vector<NodePtr> nodes() const;
  bool contains(const NodePtr& node) const;
  UserReferences& references() { return references_; }

 private:
  mutable std::mutex mutex_;
  std::vector<NodePtr> nodes_;
  UserReferences references_;
};

CUgraph insert_graph(std::shared_ptr<Graph> graph);
std::shared_ptr<Graph> find_graph(CUgraph graph);
CUresult destroy_graph(CUgraph graph);
NodePtr find_node(CUgraphNode node);
/// The nodes that `handles` name; false if one names none.
bool find_nodes(const CUgraphNode* handles, size_t count, std::vector<NodePtr>* nodes);

CUresult instantiate(Graph& graph, CUgraphExec* exec);
bool is_executable(CUgraphExec exec);
CUresult launch_graph(CUgraphExec exec, StreamObject& stream);
/// Launches under way go on.
CUresult destroy_executable(CUgraphExec exec);

}  // namespace railyard::emulator
