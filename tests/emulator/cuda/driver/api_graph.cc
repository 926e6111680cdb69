// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: graphs and user objects.
#include "capture.h"
#include "exports.h"
#include "graph.h"

#undef cuGraphInstantiate
#undef cuGraphNodeGetDependencies

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

/// Runs `f(graph)`.
template <typename F>
CUresult with_graph(CUgraph handle, F f) {
  return with_driver([&]() -> CUresult {
    std::shared_ptr<Graph> graph = find_graph(handle);
    return graph ? f(*graph) : CUDA_ERROR_INVALID_VALUE;
  });
}

/// CUDA's way to return a list: with no array the size is told, else what fits is stored, nulls
/// after it.
CUresult store_list(const std::vector<NodePtr>& from, CUgraphNode* to, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (to != nullptr) {
    for (size_t i = 0; i < *count; ++i) to[i] = i < from.size() ? from[i]->handle : nullptr;
  }
  if (to == nullptr || *count > from.size()) *count = from.size();
  return CUDA_SUCCESS;
}

CUresult add_by_hand(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                     CUgraphNodeType type, Work work) {
  return with_graph(handle, [&](Graph& graph) -> CUresult {
    Node node{type, {}, std::move(work), nullptr};
    if (out == nullptr || !find_nodes(after, count, &node.after)) return CUDA_ERROR_INVALID_VALUE;
    for (const NodePtr& other : node.after) {
      if (!graph.contains(other)) return CUDA_ERROR_INVALID_VALUE;
    }
    *out = graph.add(std::move(node))->handle;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuGraphInstantiate_v2(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t);
CUresult cuGraphNodeGetDependencies(CUgraphNode, CUgraphNode*, size_t*);

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  return with_driver([&]() -> CUresult {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                            : store(graph, insert_graph(std::make_shared<Graph>()));
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return with_driver([&] { return destroy_graph(graph); });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                             size_t count) {
  return add_by_hand(node, graph, after, count, CU_GRAPH_NODE_TYPE_EMPTY, nullptr);
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                            size_t count, const CUDA_HOST_NODE_PARAMS* parameters) {
  if (parameters == nullptr || parameters->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_by_hand(node, graph, after, count, CU_GRAPH_NODE_TYPE_HOST,
                     [function = parameters->fn, data = parameters->userData] {
                       HostFunctionScope scope;
                       function(data);
                     });
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return with_graph(handle, [&](Graph& graph) { return store_list(graph.nodes(), nodes, count); });
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return with_graph(handle, [&](Graph& graph) {
    std::vector<NodePtr> roots = graph.nodes();
    std::erase_if(roots, [](const NodePtr& node) { return !node->after.empty(); });
    return store_list(roots, nodes, count);
  });
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  return with_driver([&]() -> CUresult {
    NodePtr node = find_node(handle);
    return node ? store(type, CUgraphNodeType{node->type}) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* after, size_t* count) {
  return with_driver([&]() -> CUresult {
    NodePtr node = find_node(handle);
    return node ? store_list(node->after, after, count) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* after, CUgraphEdgeData* edges,
                                       size_t* count) {
  for (size_t i = 0; after != nullptr && edges != nullptr && count != nullptr && i < *count; ++i) {
    edges[i] = {};
  }
  return cuGraphNodeGetDependencies(node, after, count);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph handle, unsigned long long flags) {
  constexpr unsigned long long kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  return with_graph(handle, [&](Graph& graph) -> CUresult {
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (exec == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    return instantiate(graph, exec);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* culprit, char* text,
                               size_t size) {
  if (culprit != nullptr) *culprit = nullptr;
  if (text != nullptr && size > 0) *text = '\0';
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    CUresult result = refuse_capture(stream);
    if (result != CUDA_SUCCESS) return result;
    return is_executable(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    CUresult result = refuse_capture(stream);
    return result == CUDA_SUCCESS ? launch_graph(exec, stream) : result;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return with_driver([&] { return destroy_executable(exec); });
}

CUresult cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned references,
                            unsigned flags) {
  return with_driver([&]() -> CUresult {
    if (object == nullptr || destroy == nullptr || references == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return create_user_object(data, destroy, references, object);
  });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned references) {
  return with_driver([&] { return retain_user_object(object, references); });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned references) {
  return with_driver([&] { return release_user_object(object, references); });
}

CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned references,
                                 unsigned flags) {
  return with_graph(handle, [&](Graph& graph) -> CUresult {
    if (references == 0 || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return graph.references().add(object, references, flags == CU_GRAPH_USER_OBJECT_MOVE);
  });
}

CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned references) {
  return with_graph(handle,
                    [&](Graph& graph) { return graph.references().remove(object, references); });
}

}  // extern "C"
