// SPDX-License-Identifier: Apache-2.0
#include "graph.h"

#include <algorithm>
#include <map>

#include "handles.h"

namespace railyard::emulator {
namespace {

class Executable : public std::enable_shared_from_this<Executable> {
 public:
  explicit Executable(Graph& graph);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable();

  void launch(StreamObject& stream);

 private:
  struct Step {
    NodePtr node;
    size_t lane;
    std::vector<size_t> after;  ///< steps of other lanes
  };
  size_t pick_lane(const std::vector<size_t>& after);

  std::vector<Step> steps_;
  std::vector<size_t> tails_;                   ///< by lane: its last step
  std::vector<std::shared_ptr<Stream>> lanes_;  ///< the first is null: the stream of the launch
  UserReferences references_;
  std::mutex mutex_;
  Point last_;  ///< end of the last launch
};

HandleTable<CUgraph, Graph>& graphs() {
  static auto* const kTable = new HandleTable<CUgraph, Graph>(7);
  return *kTable;
}

HandleTable<CUgraphExec, Executable>& executables() {
  static auto* const kTable = new HandleTable<CUgraphExec, Executable>(8);
  return *kTable;
}

HandleTable<CUgraphNode, Node>& node_table() {
  static auto* const kTable = new HandleTable<CUgraphNode, Node>(9);
  return *kTable;
}

Executable::Executable(Graph& graph) {
  std::map<const Node*, size_t> index;
  for (NodePtr& node : graph.nodes()) {
    std::vector<size_t> after;
    for (const NodePtr& other : node->after) after.push_back(index.at(other.get()));
    const size_t lane = pick_lane(after);
    tails_[lane] = index[node.get()] = steps_.size();
    std::erase_if(after, [&](size_t step) { return steps_[step].lane == lane; });
    steps_.push_back(Step{std::move(node), lane, std::move(after)});
  }
  references_.share(graph.references());
}

/// A lane whose last step is one of `after`, else a new one.
size_t Executable::pick_lane(const std::vector<size_t>& after) {
  for (const size_t step : after) {
    const size_t lane = steps_[step].lane;
    if (tails_[lane] == step) return lane;
  }
  lanes_.push_back(lanes_.empty() ? nullptr : std::make_shared<Stream>());
  tails_.push_back(0);
  return lanes_.size() - 1;
}

Executable::~Executable() {
  for (const auto& lane : lanes_) {
    if (lane) lane->close();
  }
}

void Executable::launch(StreamObject& stream) {
  std::lock_guard lock(mutex_);
  const Point start = stream.submit([] {}, {last_});
  std::vector<Point> done(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const Node& node = *step.node;
    std::vector<Point> after;
    for (const size_t other : step.after) after.push_back(done[other]);
    if (node.after.empty()) after.push_back(start);
    if (node.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) after.push_back(last_record(*node.event));
    const auto enqueue = [&](Work work) {
      Stream* const lane = lanes_[step.lane].get();
      return lane != nullptr ? lane->enqueue(std::move(after), std::move(work))
                             : stream.submit(std::move(work), std::move(after));
    };
    if (node.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      done[i] = record_at(*node.event, enqueue);
    } else {
      done[i] = enqueue(node.work ? node.work : [] {});
    }
  }
  std::vector<Point> ends;
  for (const size_t tail : tails_) ends.push_back(done[tail]);
  // What the graph needs lives at least until the launch is over.
  last_ = stream.submit([self = shared_from_this()] {}, std::move(ends));
}

}  // namespace

Graph::~Graph() {
  for (const NodePtr& node : nodes_) node_table().take(node->handle);
}

NodePtr Graph::add(Node node) {
  auto added = std::make_shared<Node>(std::move(node));
  added->handle = node_table().insert(added);
  std::lock_guard lock(mutex_);
  nodes_.push_back(added);
  return added;
}

std::vector<NodePtr> Graph::nodes() const {
  std::lock_guard lock(mutex_);
  return nodes_;
}

bool Graph::contains(const NodePtr& node) const {
  std::lock_guard lock(mutex_);
  return std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end();
}

CUgraph insert_graph(std::shared_ptr<Graph> graph) { return graphs().insert(std::move(graph)); }

std::shared_ptr<Graph> find_graph(CUgraph graph) { return graphs().find(graph); }

CUresult destroy_graph(CUgraph graph) {
  return graphs().take(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

NodePtr find_node(CUgraphNode node) { return node_table().find(node); }

bool find_nodes(const CUgraphNode* handles, size_t count, std::vector<NodePtr>* nodes) {
  if (count > 0 && handles == nullptr) return false;
  for (size_t i = 0; i < count; ++i) {
    NodePtr node = find_node(handles[i]);
    if (!node) return false;
    nodes->push_back(std::move(node));
  }
  return true;
}

CUresult instantiate(Graph& graph, CUgraphExec* exec) {
  *exec = executables().insert(std::make_shared<Executable>(graph));
  return CUDA_SUCCESS;
}

bool is_executable(CUgraphExec exec) { return executables().find(exec) != nullptr; }

CUresult launch_graph(CUgraphExec handle, StreamObject& stream) {
  std::shared_ptr<Executable> exec = executables().find(handle);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  exec->launch(stream);
  return CUDA_SUCCESS;
}

CUresult destroy_executable(CUgraphExec exec) {
  return executables().take(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace railyard::emulator
