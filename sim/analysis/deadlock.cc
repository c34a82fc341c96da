#include "sim/analysis/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/depth_first_search.hpp>
#include <utility>
#include <vector>

namespace spiritlevel {
namespace {

using Graph = boost::compressed_sparse_row_graph<boost::directedS>;
using Vertex = uint32_t;

// Two instants of each node: it heads its lane with nothing else missing, and it ends. A collective
// has one more: all members are there.
class Instants {
 public:
  explicit Instants(const Program& program) : program_(program) {
    ReadBatches();
    for (NodeId id = 0; id < program.num_nodes(); ++id) Before(Head(id), End(id));
    ReadLanes();
    for (const Edge& edge : program.edges()) Before(End(edge.from), Head(edge.to));
    for (MessageId m = 0; m < static_cast<MessageId>(program.messages().size()); ++m) {
      ReadMessage(m);
    }
    ReadCollectives();
  }

  Graph ToGraph() const {
    return Graph(boost::edges_are_unsorted_multi_pass, edges_.begin(), edges_.end(), count_);
  }

  static Vertex Head(NodeId id) { return static_cast<Vertex>(2 * id); }
  static Vertex End(NodeId id) { return static_cast<Vertex>(2 * id + 1); }

 private:
  void Before(Vertex first, Vertex then) { edges_.emplace_back(first, then); }

  void ReadBatches() {
    batch_of_.assign(static_cast<size_t>(program_.num_nodes()), kNone);
    count_ = 2 * static_cast<Vertex>(program_.num_nodes());
    for (size_t b = 0; b < program_.batches().size(); ++b) {
      const NodeId batch = program_.batch_node(static_cast<int32_t>(b));
      for (const NodeId half : program_.batches()[b].halves) {
        batch_of_[static_cast<size_t>(half)] = batch;
        Before(Head(batch), Head(half));
        Before(End(half), End(batch));
      }
    }
  }

  void ReadLanes() {
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      for (NodeId id = program_.rank_begin(rank) + 1; id < program_.rank_end(rank); ++id) {
        Before(End(id - 1), Head(id));
      }
    }
    for (const Lane& lane : program_.CommunicationLanes()) {
      for (size_t i = 1; i < lane.nodes.size(); ++i) {
        Before(End(lane.nodes[i - 1]), Head(lane.nodes[i]));
      }
    }
  }

  void ReadMessage(MessageId m) {
    const Message& message = program_.messages()[static_cast<size_t>(m)];
    const NodeId send = program_.send_node(m);
    const NodeId receive = program_.receive_node(m);
    const NodeId batch = batch_of_[static_cast<size_t>(send)];
    Before(End(message.from), Head(batch == kNone ? send : batch));
    Before(Head(send), End(receive));
    if (program_.rendezvous()) Before(Head(receive), End(send));
    Before(End(receive), Head(message.to));
  }

  void ReadCollectives() {
    for (const Collective& collective : program_.collectives()) {
      const Vertex all_there = count_++;
      for (const NodeId member : collective.members) {
        Before(Head(member), all_there);
        Before(all_there, End(member));
      }
    }
  }

  const Program& program_;
  Vertex count_ = 0;
  std::vector<NodeId> batch_of_;
  std::vector<std::pair<Vertex, Vertex>> edges_;
};

// Keeps the path of the search, and of the first edge that closes a cycle the part that it closes.
class CycleFinder : public boost::default_dfs_visitor {
 public:
  explicit CycleFinder(std::vector<Vertex>& cycle, std::vector<Vertex>& path)
      : cycle_(cycle), path_(path) {}

  void discover_vertex(Vertex v, const Graph&) { path_.push_back(v); }
  void finish_vertex(Vertex, const Graph&) { path_.pop_back(); }
  template <class EdgeOf>
  void back_edge(EdgeOf e, const Graph& graph) {
    if (!cycle_.empty()) return;
    const auto first = std::find(path_.begin(), path_.end(), boost::target(e, graph));
    cycle_.assign(first, path_.end());
  }

 private:
  std::vector<Vertex>& cycle_;
  std::vector<Vertex>& path_;
};

class Describer {
 public:
  explicit Describer(const Program& program) : program_(program) {}

  std::string Describe(const std::vector<Vertex>& cycle) const {
    std::vector<NodeId> nodes;  // each once, the earlier first
    for (const Vertex v : cycle) {
      const auto id = static_cast<NodeId>(v / 2);
      if (id >= program_.num_nodes()) continue;  // of a collective
      if (nodes.empty() || nodes.back() != id) nodes.push_back(id);
    }
    if (nodes.size() > 1 && nodes.front() == nodes.back()) nodes.pop_back();
    constexpr size_t kMost = 12;
    std::string text = fmt::format("deadlocks under {} posting:", Name(program_.posting()));
    for (size_t i = nodes.size(); i-- > 0 && nodes.size() - i <= kMost;) {
      const NodeId waited_for = nodes[i == 0 ? nodes.size() - 1 : i - 1];
      const bool behind = RankOf(nodes[i]) == RankOf(waited_for);
      text += fmt::format("\n  {} {} {}", NameOf(nodes[i]), behind ? "stands behind" : "waits for",
                          NameOf(waited_for));
    }
    if (nodes.size() > kMost) text += fmt::format("\n  and {} more", nodes.size() - kMost);
    return text;
  }

 private:
  int RankOf(NodeId id) const {
    if (id < program_.num_lane_nodes()) return program_.rank_of(id);
    if (program_.is_reduction(id)) {
      return program_.reductions()[static_cast<size_t>(id - program_.reduction_node(0))].rank;
    }
    if (program_.is_batch(id)) {
      return program_.batches()[static_cast<size_t>(id - program_.batch_node(0))].rank;
    }
    const Link& link = LinkOf(id);
    return program_.is_send(id) ? link.from_rank : link.to_rank;
  }

  const Link& LinkOf(NodeId half) const {
    const Message& m = program_.messages()[static_cast<size_t>(program_.message_of(half))];
    return program_.links()[static_cast<size_t>(m.link)];
  }

  std::string NameOf(NodeId id) const { return fmt::format("rank {}: {}", RankOf(id), WhatIs(id)); }

  std::string WhatIs(NodeId id) const {
    if (id < program_.num_lane_nodes()) return NameOfNode(id);
    if (program_.is_half(id)) return NameOfHalf(id);
    if (program_.is_reduction(id)) return NameOfReduction(id);
    std::string names;
    for (const NodeId half :
         program_.batches()[static_cast<size_t>(id - program_.batch_node(0))].halves) {
      names += (names.empty() ? "" : ", ") + NameOfHalf(half);
    }
    return fmt::format("batch ({})", names);
  }

  std::string NameOfNode(NodeId id) const {
    const Node& node = program_.nodes()[static_cast<size_t>(id)];
    switch (node.kind) {
      case NodeKind::kOp:
        return ToString(node.op);
      case NodeKind::kPair:
        return fmt::format("({};{})", ToString(node.op), ToString(program_.second_op(node)));
      case NodeKind::kPart:
        return fmt::format("part {} of {}", program_.part(node).index, ToString(node.op));
      case NodeKind::kDroppedOp:
        return ToString(node.op) + ", to be dropped";
      case NodeKind::kCollective:
        return "collective";
      case NodeKind::kValidation:
        return "validation";
      case NodeKind::kRollback:
        return "rollback";
      default:
        return "optimizer step";
    }
  }

  std::string NameOfReduction(NodeId id) const {
    const Reduction& reduction =
        program_.reductions()[static_cast<size_t>(id - program_.reduction_node(0))];
    switch (reduction.kind) {
      case NodeKind::kBucketSum:
        return fmt::format("sum of stage {}'s gradient bucket {}", reduction.stage,
                           reduction.bucket);
      case NodeKind::kTwinSum:
        return fmt::format("sum of stage {}'s two gradients", reduction.stage);
      case NodeKind::kTiedSum:
        return "sum of the embedding's gradients";
      default:
        return "reduction";
    }
  }

  std::string NameOfHalf(NodeId half) const {
    const Message& m = program_.messages()[static_cast<size_t>(program_.message_of(half))];
    const Link& link = LinkOf(half);
    return program_.is_send(half)
               ? fmt::format("send of {} to rank {}", NameOfNode(m.from), link.to_rank)
               : fmt::format("receive of {} from rank {}", NameOfNode(m.from), link.from_rank);
  }

  const Program& program_;
};

}  // namespace

std::optional<std::string> FindDeadlock(const Program& program) {
  const Graph graph = Instants(program).ToGraph();
  std::vector<Vertex> cycle;
  std::vector<Vertex> path;
  std::vector<boost::default_color_type> colours(boost::num_vertices(graph));
  boost::depth_first_search(graph,
                            boost::visitor(CycleFinder(cycle, path))
                                .color_map(boost::make_iterator_property_map(
                                    colours.begin(), boost::get(boost::vertex_index, graph))));
  if (cycle.empty()) return {};
  return Describer(program).Describe(cycle);
}

}  // namespace spiritlevel
