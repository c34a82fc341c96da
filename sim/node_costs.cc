#include "sim/node_costs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

NodeCost CostOf(Pass pass, const StageCost& stage, TimeNs launch) {
  constexpr auto kB = static_cast<size_t>(MemoryCategory::kWaitingForB);
  constexpr auto kW = static_cast<size_t>(MemoryCategory::kWaitingForW);
  constexpr auto kWorkspace = static_cast<size_t>(MemoryCategory::kWorkspace);
  NodeCost cost{.duration = stage.duration(pass), .launch = launch};
  switch (pass) {
    case Pass::kF:
      cost.at_start[kB] = stage.activation;
      break;
    case Pass::kB:
      // What W needs may be more than what B frees: then the rest is taken at the start.
      cost.at_start[kW] = std::max<Bytes>(0, stage.weight_state - stage.activation);
      cost.at_end[kB] = -stage.activation;
      cost.at_end[kW] = stage.weight_state - cost.at_start[kW];
      break;
    case Pass::kW:
      cost.at_end[kW] = -stage.weight_state;
      break;
    case Pass::kBW:
      cost.at_end[kB] = -stage.activation;
      break;
  }
  const Bytes transient = stage.transient[static_cast<size_t>(pass)];
  cost.at_start[kWorkspace] = transient;
  cost.at_end[kWorkspace] = -transient;
  cost.grow = Total(cost.at_start);
  cost.shrink = -Total(cost.at_end);
  return cost;
}

NodeCost CostOfPair(const Op& first, const Op& second, const Costs& costs) {
  const TimeNs launch = costs.common().launch;
  const NodeCost a = CostOf(first.pass, costs.of(first.stage, first.micro_batch), launch);
  const NodeCost b = CostOf(second.pass, costs.of(second.stage, second.micro_batch), launch);
  NodeCost pair{.duration = costs.overlapped_duration(first, second),
                .launch = launch,
                .grow = a.grow + b.grow,
                .shrink = a.shrink + b.shrink};
  if (pair.duration < 0) {
    throw InputError("overlapped_us: an F&B pair would take less than no time",
                     "it is the time of a forward and a backward executed together");
  }
  for (size_t i = 0; i < kNumMemoryCategories; ++i) {
    pair.at_start[i] = a.at_start[i] + b.at_start[i];
    pair.at_end[i] = a.at_end[i] + b.at_end[i];
  }
  return pair;
}

// Of `amount`, what lies in [from, to) of `whole`, so that what lies side by side sums to it.
int64_t Between(int64_t amount, int64_t from, int64_t to, int64_t whole) {
  const auto upto = [&](int64_t share) {
    return static_cast<int64_t>((2 * static_cast<Int128>(amount) * share + whole) /
                                (2 * static_cast<Int128>(whole)));
  };
  return upto(to) - upto(from);
}

}  // namespace

CostClasses::CostClasses(const Costs& costs)
    : costs_(costs),
      micro_batches_(costs.varies_by_micro_batch() ? static_cast<size_t>(costs.num_micro_batches())
                                                   : 1),
      ids_(static_cast<size_t>(costs.num_stages()) * micro_batches_ * kNumPasses, kNone) {}

int32_t CostClasses::AddOp(const Op& op) {
  return Add(CostOf(op.pass, costs_.of(op.stage, op.micro_batch), costs_.common().launch));
}

int32_t CostClasses::OfPair(const Op& first, const Op& second) {
  if (costs_.varies_by_micro_batch()) return Add(CostOfPair(first, second, costs_));
  // A rank pairs few stages with each other, so the pairs seen last are nearly always it.
  const auto same = [&](const SeenPair& p) {
    return p.first.stage == first.stage && p.first.pass == first.pass &&
           p.second_stage == second.stage;
  };
  const auto found = std::find_if(pairs_.rbegin(), pairs_.rend(), same);
  if (found != pairs_.rend()) return found->id;
  pairs_.push_back({first, second.stage, Add(CostOfPair(first, second, costs_))});
  return pairs_.back().id;
}

int32_t CostClasses::OfPart(const Op& op, const Part& part) {
  const std::vector<GradientBucket>& buckets = costs_.common().gradients.buckets[op.stage];
  int64_t from = 0;
  int64_t whole = 0;
  for (int32_t i = 0; i < part.count; ++i) {
    if (i < part.index) from += buckets[i].share;
    whole += buckets[i].share;
  }
  const int64_t to = from + buckets[part.index].share;
  const NodeCost all = CostOf(op.pass, costs_.of(op.stage, op.micro_batch), costs_.common().launch);
  NodeCost cost{.duration = Between(all.duration, from, to, whole),
                .launch = part.index == 0 ? all.launch : 0};
  for (size_t i = 0; i < cost.at_end.size(); ++i) {
    // What is held while the op runs is held by each part; what was kept for it goes bit by bit.
    const bool while_it_runs = all.at_start[i] != 0;
    cost.at_start[i] = all.at_start[i];
    cost.at_end[i] = while_it_runs ? all.at_end[i] : -Between(-all.at_end[i], from, to, whole);
  }
  cost.grow = Total(cost.at_start);
  cost.shrink = -Total(cost.at_end);
  return Add(cost);
}

int32_t CostClasses::Add(const NodeCost& cost) {
  classes_.push_back(cost);
  return static_cast<int32_t>(classes_.size()) - 1;
}

}  // namespace spiritlevel
