#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/check.h"
#include "verify/emulated_work.h"
#include "verify/isolated.h"

namespace spiritlevel {
namespace {

// Long enough that ranks wait for each other as they do beside kernels.
constexpr TimeNs kPass = 300'000;
constexpr int kMicroBatches = 64;

// Passes take their time and hand over as many bytes as a model's.
class HandingOver : public EmulatedWork {
 public:
  HandingOver(const RankContext& context, Bytes message)
      : EmulatedWork(context),
        last_stage_(context.program.num_stages() - 1),
        message_(static_cast<size_t>(message)) {}

  Payload RunOp(OpCall& call) override {
    EmulatedWork::RunOp(call);
    const bool forward = call.op.pass == Pass::kF;
    if (forward ? call.op.stage == last_stage_ : call.op.stage == 0) return {};
    Payload made = Payload::Allocate(message_);
    std::memset(made.data(), 1, made.size());
    return made;
  }

 private:
  const int last_stage_;
  const size_t message_;
};

TimeNs MedianOf(std::vector<TimeNs> values) {
  if (values.empty()) return 0;
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  return std::max<TimeNs>(0, *half);
}

}  // namespace

RuntimeTimes TimeRuntime(int ranks, Bytes message, const RunOptions& options) {
  SPIRITLEVEL_CHECK(ranks >= 1 && message >= 0, "a message has a size");
  message = std::max<Bytes>(message, 1);  // of one rank, which sends none
  const Costs costs = Costs::Uniform(
      ranks, kMicroBatches,
      {.forward = kPass, .input_grad = kPass, .weight_grad = kPass, .fused_backward = kPass},
      {.optimizer = kPass});
  std::vector<std::vector<int>> stages_of;
  for (int rank = 0; rank < ranks; ++rank) stages_of.push_back({rank});
  const Program program = PlacementProgram(stages_of, costs);
  const RunReport report = RunProgram(
      program,
      [&](const RankContext& context) { return std::make_shared<HandingOver>(context, message); },
      options);
  if (report.failure) {
    throw RunFailed("the runtime could not be timed: " + report.failure->message);
  }
  const Timeline& timeline = report.timelines[0];
  std::vector<TimeNs> launches;
  std::vector<TimeNs> hops;
  TimeNs last_op = 0;
  TimeNs first_step = std::numeric_limits<TimeNs>::max();
  for (int rank = 0; rank < ranks; ++rank) {
    TimeNs free = -1;
    for (NodeId id = program.rank_begin(rank); id < program.rank_end(rank); ++id) {
      const Node& node = program.nodes()[id];
      const NodeTimes& times = timeline.nodes[static_cast<size_t>(id)];
      if (node.kind == NodeKind::kOp) {
        // The first finds everything cold.
        if (free >= 0) launches.push_back(times.start - std::max(free, times.ready));
        free = times.end;
        last_op = std::max(last_op, times.end);
      }
      if (node.kind == NodeKind::kOptimizer) first_step = std::min(first_step, times.start);
    }
  }
  for (size_t m = 0; m < program.messages().size(); ++m) {
    const NodeId from = program.messages()[m].from;
    hops.push_back(timeline.messages[m].arrival - timeline.nodes[static_cast<size_t>(from)].end);
  }
  return {.launch = MedianOf(std::move(launches)),
          .hop = MedianOf(std::move(hops)),
          .barrier = std::max<TimeNs>(0, first_step - last_op)};
}

}  // namespace spiritlevel
