#include "report/torch_comms_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "report/torch_csv.h"
#include "sim/analysis/deadlock.h"
#include "sim/program.h"

namespace spiritlevel {
namespace {

Costs AnyCosts(const Schedule& schedule) {
  return Costs::Uniform(
      schedule.num_stages(), schedule.num_micro_batches(),
      {.forward = 1, .input_grad = 1, .weight_grad = 1, .fused_backward = 2, .overlapped = 3});
}

// Posts what lies in a rank's lanes beside its ops.
class RowWriter {
 public:
  RowWriter(const Program& program, const Schedule& schedule, int rank,
            const TorchCommsOptions& options)
      : program_(program), schedule_(schedule), rank_(rank), options_(options) {
    for (const Lane& lane : program.CommunicationLanes()) {
      if (lane.rank != rank) continue;
      for (size_t i = 0; i < lane.nodes.size(); ++i) place_[lane.nodes[i]] = {lanes_.size(), i};
      lanes_.push_back(lane);
    }
    posted_.resize(lanes_.size());
  }

  std::string Write() {
    for (NodeId id = program_.rank_begin(rank_); id < program_.rank_end(rank_); ++id) {
      const Node& node = program_.nodes()[id];
      if (!RunsOps(node.kind)) continue;
      std::vector<Op> ops = {node.op};
      if (node.kind == NodeKind::kPair) ops.push_back(program_.second_op(node));
      if (options_.shards) Shard(id);
      for (const MessageId m : node.inputs) {
        if (m != kNone) PostUpTo(program_.receive_node(m));
      }
      AddCell(ops);
      for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
        PostUpTo(program_.send_node(m));
      }
      if (options_.reduce_grad) ReduceAfter(ops);
    }
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      SPIRITLEVEL_CHECK(posted_[lane] == lanes_[lane].nodes.size(),
                        "each message is posted on both sides");
    }
    for (const int stage : active_) Add(fmt::format("{}RESHARD", stage));
    row_ += '\n';
    return std::move(row_);
  }

 private:
  // Stages whose parameters lie on the rank at once, as in PyTorch's pass.
  static constexpr size_t kMostActive = 3;

  static std::string_view Letter(Pass pass) {
    switch (pass) {
      case Pass::kF:
        return "F";
      case Pass::kB:
        return "I";
      case Pass::kW:
        return "W";
      case Pass::kBW:
        return "B";
    }
    return "";
  }

  static std::string InTorch(const Op& op) {
    return fmt::format("{}{}{}", op.stage, Letter(op.pass), op.micro_batch);
  }

  void Add(std::string_view cell) {
    if (!row_.empty()) row_ += ',';
    row_ += cell;
  }

  void AddCell(const std::vector<Op>& ops) {
    if (ops.size() == 1) return Add(InTorch(ops[0]));
    Add(fmt::format("({};{})OVERLAP_F_B", InTorch(ops[0]), InTorch(ops[1])));
  }

  // Does `read` take what `made` makes?
  static bool Continues(const Op& made, const Op& read) {
    if (made.micro_batch != read.micro_batch) return false;
    return made.pass == Pass::kF
               ? read.pass == Pass::kF && read.stage == made.stage + 1
               : (read.pass == Pass::kB || read.pass == Pass::kBW) && read.stage + 1 == made.stage;
  }

  // What a message carries. A pair makes two, the first op's first; of one, the reader tells.
  Op MadeFor(MessageId message) const {
    const Node& from = program_.nodes()[program_.messages()[message].from];
    const std::vector<Op> made = OpsOf(from);
    if (from.num_outputs == made.size()) {
      return made[static_cast<size_t>(message - from.first_output)];
    }
    for (const Op& op : made) {
      for (const Op& read : OpsOf(program_.nodes()[program_.messages()[message].to])) {
        if (Continues(op, read)) return op;
      }
    }
    SPIRITLEVEL_CHECK(false, "a message is read by an op that continues it");
  }

  void Post(NodeId half) {
    const Op made = MadeFor(program_.message_of(half));
    const bool forward = made.pass == Pass::kF;
    const int reader = forward ? made.stage + 1 : made.stage - 1;
    const bool sends = program_.is_send(half);
    Add(fmt::format("{}{}_{}{}", sends ? made.stage : reader, sends ? "SEND" : "RECV",
                    forward ? 'F' : 'B', made.micro_batch));
  }

  std::vector<Op> OpsOf(const Node& node) const {
    if (node.kind == NodeKind::kPair) return {node.op, program_.second_op(node)};
    return {node.op};
  }

  void PostUpTo(NodeId half) {
    const auto [lane, place] = place_.at(half);
    const std::vector<NodeId>& nodes = lanes_[lane].nodes;
    for (size_t& next = posted_[lane]; next <= place; ++next) {
      SPIRITLEVEL_CHECK(nodes[next] == half || !program_.is_send(nodes[next]),
                        "a send is posted as soon as it is made");
      Post(nodes[next]);
    }
  }

  void ReduceAfter(const std::vector<Op>& ops) {
    for (const Op& op : ops) {
      if (op.pass != Pass::kW && op.pass != Pass::kBW) continue;
      if (++finished_[op.stage] < schedule_.num_micro_batches()) continue;
      Add(fmt::format("{}REDUCE_GRAD", op.stage));
    }
  }

  // PyTorch's _add_unshard_reshard: before each cell, the parameters of the next few stages.
  void Shard(NodeId from) {
    std::vector<int> next;
    for (NodeId id = from; id < program_.rank_end(rank_) && next.size() < kMostActive; ++id) {
      const Node& node = program_.nodes()[id];
      if (!RunsOps(node.kind)) continue;
      for (const Op& op : OpsOf(node)) {
        if (std::find(next.begin(), next.end(), op.stage) == next.end()) next.push_back(op.stage);
      }
    }
    const std::set<int> before = active_;
    for (const int stage : before) {
      if (std::find(next.begin(), next.end(), stage) != next.end()) continue;
      Add(fmt::format("{}RESHARD", stage));
      active_.erase(stage);
    }
    for (const int stage : next) {
      if (active_.insert(stage).second) Add(fmt::format("{}UNSHARD", stage));
    }
  }

  const Program& program_;
  const Schedule& schedule_;
  int rank_;
  const TorchCommsOptions& options_;
  std::vector<Lane> lanes_;     // of this rank, one for each peer
  std::vector<size_t> posted_;  // by lane: how many of its nodes
  std::map<NodeId, std::pair<size_t, size_t>> place_;
  std::map<int, int> finished_;  // by stage: W's and BW's
  std::set<int> active_;
  std::string row_;
};

}  // namespace

std::string ToTorchCommsCsv(const Schedule& schedule, const TorchCommsOptions& options) {
  ToTorchCsv(schedule);  // refuses what PyTorch cannot run
  const Program program = Lower(
      schedule, AnyCosts(schedule),
      {.posting = Posting::kNcclFifo, .tail = Tail::kNoTail, .receives = Receives::kDeferred});
  const std::optional<std::string> deadlock = FindDeadlock(program);
  SPIRITLEVEL_CHECK(!deadlock,
                    ("deferred receives never deadlock: " + deadlock.value_or("")).c_str());
  std::string csv;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    csv += RowWriter(program, schedule, rank, options).Write();
  }
  const std::string objection = TorchCommsObjection(csv);
  SPIRITLEVEL_CHECK(objection.empty(),
                    ("PyTorch can run the CSV that is written: " + objection).c_str());
  return csv;
}

}  // namespace spiritlevel
