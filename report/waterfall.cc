#include "report/waterfall.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/analysis/summary.h"
#include "sim/engine.h"

namespace spiritlevel {
namespace {

Costs WithCommon(const Costs& costs, const Costs::Common& common) {
  const int micro_batches = costs.varies_by_micro_batch() ? costs.num_micro_batches() : 1;
  std::vector<StageCost> table;
  table.reserve(static_cast<size_t>(costs.num_stages()) * static_cast<size_t>(micro_batches));
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    for (int i = 0; i < micro_batches; ++i) table.push_back(costs.of(stage, i));
  }
  return Costs(costs.num_stages(), costs.num_micro_batches(), std::move(table), common);
}

class Replay {
 public:
  Replay(const Schedule& schedule, const Costs& costs, const LoweringOptions& options)
      : schedule_(schedule), costs_(costs), options_(options) {
    options_.tail = Tail::kNoTail;
    options_.rejected.clear();  // nothing is validated without a tail
    options_.iterations = std::max(options.iterations, kPeriodIterations);
  }

  // Without a tail, and with of messages and launch delays what is asked for.
  Summary Run(bool messages, bool launch) const {
    Costs::Common common = costs_.common();
    common.optimizer = 0;
    common.optimizer_by_stage.clear();
    common.tied_optimizer = 0;
    common.barrier = 0;
    common.gradients = {};
    LoweringOptions options = options_;
    if (!launch) common.launch = 0;
    if (!messages) {
      common.hop = {};
      options.posting = Posting::kIdeal;
    }
    const Costs costs = WithCommon(costs_, common);
    const Program program = Lower(schedule_, costs, options);
    return Summarize(program, costs, SimulateInOrder(program));
  }

 private:
  const Schedule& schedule_;
  const Costs& costs_;
  LoweringOptions options_;
};

TimeNs Mean(const std::vector<TimeNs>& of_ranks) {
  const TimeNs sum = std::accumulate(of_ranks.begin(), of_ranks.end(), TimeNs{0});
  return DivideHalfUp(sum, static_cast<int64_t>(of_ranks.size()));
}

}  // namespace

std::string_view Name(WaterfallPart part) {
  constexpr std::array<std::string_view, kNumWaterfallParts> kNames = {
      "ideal", "imbalance", "schedule", "transfer", "launch", "tail"};
  return kNames[static_cast<size_t>(part)];
}

Waterfall FindWaterfall(const Schedule& schedule, const Costs& costs,
                        const LoweringOptions& options, TimeNs step) {
  const Replay replay(schedule, costs, options);
  const Summary alone = replay.Run(/*messages=*/false, /*launch=*/false);
  const std::vector<TimeNs>& busy = alone.stalls.busy;
  // What has been reached after each part.
  std::array<TimeNs, kNumWaterfallParts> reached{};
  const auto set = [&](WaterfallPart part, TimeNs time) {
    reached[static_cast<size_t>(part)] = time;
  };
  set(WaterfallPart::kIdeal, Mean(busy));
  set(WaterfallPart::kImbalance, *std::max_element(busy.begin(), busy.end()));
  set(WaterfallPart::kSchedule, alone.period);
  set(WaterfallPart::kTransfer, replay.Run(/*messages=*/true, /*launch=*/false).period);
  set(WaterfallPart::kLaunch, replay.Run(/*messages=*/true, /*launch=*/true).period);
  set(WaterfallPart::kTail, step);
  Waterfall waterfall;
  std::adjacent_difference(reached.begin(), reached.end(), waterfall.parts.begin());
  return waterfall;
}

}  // namespace spiritlevel
