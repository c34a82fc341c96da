#include "verify/stream_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "verify/lane_plan.h"

namespace spiritlevel {

// Steps are found in the order of a graph whose vertices are, for N nodes and M messages:
//   n < N        of a compute node or a reduction: that it runs; of a lane's half or batch: that it
//                is posted. The members of a collective have one vertex, that of the first.
//   N + n        the half or batch is done
//   2 N + m      the message is transferred
class StreamPlanner {
 public:
  StreamPlanner(const Timeline& expected, StreamPlan* plan)
      : program_(plan->program_),
        expected_(expected),
        lanes_(program_),
        num_nodes_(program_.num_nodes()),
        num_messages_(static_cast<MessageId>(program_.messages().size())),
        plan_(*plan) {}

  void Make() {
    PlaceStreams();
    Connect();
    IssueAll();
  }

 private:
  using Vertex = int32_t;
  struct Arrow {
    Vertex before;
    Vertex after;
    friend auto operator<=>(const Arrow&, const Arrow&) = default;
  };
  struct Candidate {
    TimeNs start;
    Vertex vertex;
    friend auto operator<=>(const Candidate&, const Candidate&) = default;
  };

  Vertex DoneOf(NodeId node) const { return num_nodes_ + node; }
  Vertex TransferOf(MessageId message) const { return 2 * num_nodes_ + message; }
  bool IsOnLane(NodeId node) const { return program_.is_half(node) || program_.is_batch(node); }
  NodeId SendOf(MessageId m) const { return lanes_.in_lane(program_.send_node(m)); }
  NodeId ReceiveOf(MessageId m) const { return lanes_.in_lane(program_.receive_node(m)); }
  // The node whose end is this one's.
  NodeId EndOf(NodeId node) const { return program_.is_half(node) ? lanes_.in_lane(node) : node; }
  Vertex BeginVertex(NodeId node) const {
    if (IsOnLane(node)) return EndOf(node);
    if (lanes_.member_of(node) == kNone) return node;
    return program_.collectives()[lanes_.collective_of(node)].members.front();
  }
  Vertex EndVertex(NodeId node) const {
    return IsOnLane(node) ? DoneOf(EndOf(node)) : BeginVertex(node);
  }

  void PlaceStreams() {
    plan_.stream_of_.assign(static_cast<size_t>(num_nodes_), kNone);
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      plan_.rank_of_stream_.push_back(rank);
      for (NodeId id = program_.rank_begin(rank); id < program_.rank_end(rank); ++id) {
        plan_.stream_of_[id] = rank;
      }
    }
    for (const Lane& lane : program_.CommunicationLanes()) {
      const auto stream = static_cast<int32_t>(plan_.rank_of_stream_.size());
      plan_.rank_of_stream_.push_back(lane.rank);
      for (const NodeId id : lane.nodes) plan_.stream_of_[id] = stream;
    }
    for (NodeId half = program_.num_lane_nodes(); half < program_.batch_node(0); ++half) {
      plan_.stream_of_[half] = plan_.stream_of_[lanes_.in_lane(half)];
    }
  }

  void Connect() {
    const auto vertices = static_cast<size_t>(2 * num_nodes_ + num_messages_);
    exists_.assign(vertices, 0);
    for (NodeId id = 0; id < num_nodes_; ++id) {
      exists_[BeginVertex(id)] = exists_[EndVertex(id)] = 1;
      for (const NodeId after : lanes_.followers(id)) Depend(id, after);
    }
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      for (NodeId id = program_.rank_begin(rank) + 1; id < program_.rank_end(rank); ++id) {
        Depend(id - 1, id);
      }
    }
    for (MessageId m = 0; m < num_messages_; ++m) ConnectMessage(m);
    std::sort(arrows_.begin(), arrows_.end());
    std::sort(waits_for_.begin(), waits_for_.end());
  }

  void Depend(NodeId before, NodeId after) {
    arrows_.push_back({EndVertex(before), BeginVertex(after)});
    waits_for_.push_back({EndOf(after), EndOf(before)});
  }

  void ConnectMessage(MessageId m) {
    const Vertex transfer = TransferOf(m);
    exists_[transfer] = 1;
    arrows_.push_back({SendOf(m), transfer});
    if (program_.rendezvous()) arrows_.push_back({ReceiveOf(m), transfer});
    for (const NodeId side : {SendOf(m), ReceiveOf(m)}) {
      arrows_.push_back({transfer, DoneOf(side)});
      arrows_.push_back({side, DoneOf(side)});
      halves_.push_back({side, m});
    }
    if (m + 1 == num_messages_) std::sort(halves_.begin(), halves_.end());
  }

  void IssueAll() {
    std::vector<int32_t> open(exists_.size(), 0);
    for (const Arrow& arrow : arrows_) ++open[arrow.after];
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> next;
    int64_t left = 0;
    for (Vertex v = 0; v < static_cast<Vertex>(exists_.size()); ++v) {
      left += exists_[v];
      if (exists_[v] != 0 && open[v] == 0) next.push({StartOf(v), v});
    }
    issued_at_.assign(exists_.size(), 0);
    waited_.resize(static_cast<size_t>(plan_.num_streams()));
    for (; !next.empty(); --left) {
      const Vertex vertex = next.top().vertex;
      next.pop();
      Issue(vertex);
      auto arrow = std::lower_bound(arrows_.begin(), arrows_.end(), Arrow{vertex, 0});
      for (; arrow != arrows_.end() && arrow->before == vertex; ++arrow) {
        if (--open[arrow->after] == 0) next.push({StartOf(arrow->after), arrow->after});
      }
    }
    SPIRITLEVEL_CHECK(left == 0, "a Program whose streams are planned does not deadlock");
  }

  // Only which of several possible steps comes first depends on it.
  TimeNs StartOf(Vertex vertex) const {
    if (vertex >= 2 * num_nodes_) return expected_.messages[vertex - 2 * num_nodes_].start;
    const bool is_done = vertex >= num_nodes_;
    const NodeId node = is_done ? vertex - num_nodes_ : vertex;
    if (program_.is_reduction(node)) {
      return expected_.reductions[node - program_.reduction_node(0)].start;
    }
    if (!IsOnLane(node)) return expected_.nodes[node].start;
    const std::span<const Half> halves = HalvesOf(node);
    TimeNs start = INT64_MAX;
    TimeNs end = 0;
    for (const Half& half : halves) {
      start = std::min(start, expected_.messages[half.message].start);
      end = std::max(end, expected_.messages[half.message].arrival);
    }
    return is_done ? end : start;
  }

  void Issue(Vertex vertex) {
    StreamPlan::FlatStep step;
    if (vertex >= 2 * num_nodes_) {
      const MessageId message = vertex - 2 * num_nodes_;
      plan_.messages_.push_back(message);
      step.kind = StreamPlan::StepKind::kTransfer;
      step.node = SendOf(message);
    } else if (vertex >= num_nodes_) {
      step.kind = StreamPlan::StepKind::kDone;
      step.node = vertex - num_nodes_;
    } else {
      step.node = vertex;
      step.kind = KindOf(vertex);
      IssueNode(vertex, step.kind);
    }
    step.stream = plan_.stream_of_[step.node];
    step.waits_end = static_cast<int32_t>(plan_.waits_.size());
    step.messages_end = static_cast<int32_t>(plan_.messages_.size());
    plan_.steps_.push_back(step);
    issued_at_[vertex] = plan_.num_steps();
  }

  StreamPlan::StepKind KindOf(NodeId node) const {
    if (lanes_.member_of(node) != kNone) return StreamPlan::StepKind::kCollective;
    return IsOnLane(node) ? StreamPlan::StepKind::kPost : StreamPlan::StepKind::kCompute;
  }

  void IssueNode(NodeId node, StreamPlan::StepKind kind) {
    if (kind == StreamPlan::StepKind::kCollective) {
      for (const NodeId member : program_.collectives()[lanes_.collective_of(node)].members) {
        AddWaits(member);
      }
      return;
    }
    AddWaits(node);
    for (const Half& half : HalvesOf(node)) plan_.messages_.push_back(half.message);
  }

  // Ends on the same stream are behind each other anyway.
  void AddWaits(NodeId node) {
    const int32_t stream = plan_.stream_of_[node];
    auto at = std::lower_bound(waits_for_.begin(), waits_for_.end(), Arrow{node, 0},
                               [](const Arrow& a, const Arrow& b) { return a.before < b.before; });
    for (; at != waits_for_.end() && at->before == node; ++at) {
      const NodeId awaited = at->after;
      const int32_t source = plan_.stream_of_[awaited];
      if (source == stream) continue;
      const int32_t issued = issued_at_[EndVertex(awaited)];
      int32_t& latest = LatestWaitedFor(stream, source);
      if (latest >= issued) continue;
      latest = issued;
      plan_.waits_.push_back({stream, awaited});
    }
  }

  // The step of the latest end on `source` that `stream` waits for. It waits for few others.
  int32_t& LatestWaitedFor(int32_t stream, int32_t source) {
    for (auto& [from, latest] : waited_[stream]) {
      if (from == source) return latest;
    }
    return waited_[stream].emplace_back(source, 0).second;
  }

  struct Half {
    NodeId on_lane;
    MessageId message;
    friend auto operator<=>(const Half&, const Half&) = default;
  };
  std::span<const Half> HalvesOf(NodeId on_lane) const {
    const auto begin = std::lower_bound(halves_.begin(), halves_.end(), Half{on_lane, 0});
    const auto end = std::lower_bound(begin, halves_.end(), Half{on_lane + 1, 0});
    return {begin, end};
  }

  const Program& program_;
  const Timeline& expected_;
  LanePlan lanes_;
  NodeId num_nodes_;
  MessageId num_messages_;
  StreamPlan& plan_;
  std::vector<uint8_t> exists_;     // by vertex
  std::vector<Arrow> arrows_;       // between vertices
  std::vector<Arrow> waits_for_;    // here `before` is the node that waits, `after` for whose end
  std::vector<Half> halves_;        // those of a lane's node together
  std::vector<int32_t> issued_at_;  // by vertex: its step, from 1
  std::vector<std::vector<std::pair<int32_t, int32_t>>> waited_;  // by stream
};

StreamPlan::StreamPlan(const Program& program, const Timeline& expected) : program_(program) {
  StreamPlanner(expected, this).Make();
}

StreamPlan::Step StreamPlan::step(int i) const {
  const FlatStep before = i > 0 ? steps_[i - 1] : FlatStep{};
  const FlatStep& flat = steps_[i];
  Step step{
      .kind = flat.kind,
      .stream = flat.stream,
      .node = flat.node,
      .waits = {waits_.data() + before.waits_end, waits_.data() + flat.waits_end},
      .messages = {messages_.data() + before.messages_end, messages_.data() + flat.messages_end},
      .members = {}};
  if (flat.kind == StepKind::kCollective) {
    const int32_t collective =
        program_.is_reduction(flat.node)
            ? program_.reductions()[flat.node - program_.reduction_node(0)].collective
            : program_.nodes()[flat.node].extra;
    step.members = program_.collectives()[collective].members;
  }
  return step;
}

}  // namespace spiritlevel
