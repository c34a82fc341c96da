#include "sim/search/explore.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace spiritlevel {
namespace {

// So many are drawn at random before any is drawn around the best.
constexpr int64_t kDrawnFirst = 40;
constexpr double kDrawnAnew = 0.25;
// How often policies are tried while wave templates are better, and the other way round.
constexpr double kOfTheOther = 0.2;

struct RankWork {
  double work = 0;        // of one micro-batch
  double passes = 0;      // its forwards and backwards alone
  Bytes activations = 0;  // that it keeps
};

RankWork WorkOf(const SearchProblem& problem, int rank) {
  RankWork sum;
  for (int chunk = 0; chunk < problem.placement.stages_per_rank; ++chunk) {
    const StageCost& cost = problem.costs->of(problem.placement.stage_of(rank, chunk), 0);
    sum.passes += static_cast<double>(cost.forward + cost.input_grad);
    sum.work += static_cast<double>(cost.forward + cost.input_grad + cost.weight_grad);
    sum.activations += cost.activation;
  }
  return sum;
}

}  // namespace

void Candidates::Offer(TimeNs value, const Plan& plan) {
  if (value == Decoder::kInfeasible) return;
  const auto place =
      std::lower_bound(kept_.begin(), kept_.end(), value,
                       [](const Candidate& kept, TimeNs wanted) { return kept.value < wanted; });
  if (place != kept_.end() && place->value == value) return;
  kept_.insert(place, {value, plan});
  if (kept_.size() > kMost) kept_.pop_back();
}

Explorer::Explorer(const SearchProblem& problem, Decoder& decoder, uint64_t seed)
    : problem_(problem), decoder_(decoder), random_(seed), scheduler_(problem) {
  const Placement& placement = problem.placement;
  empty_.order.resize(static_cast<size_t>(problem.micro_batches()));
  std::iota(empty_.order.begin(), empty_.order.end(), 0);
  empty_.gap_permille.assign(2 * static_cast<size_t>(placement.ranks), 500);
  empty_.turns.resize(static_cast<size_t>(placement.ranks));
  const HopCost& hop = problem.costs->common().hop;
  for (int stage = 0; stage < placement.num_stages(); ++stage) {
    const StageCost& cost = problem.costs->of(stage, 0);
    grid_ = std::max(
        grid_, static_cast<double>(cost.forward + cost.input_grad + 2 * (hop.latency + hop.busy)));
  }
  double passes = 0;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    const RankWork of_rank = WorkOf(problem, rank);
    work_ = std::max(work_, of_rank.work);
    passes = std::max(passes, of_rank.passes);
  }
  const Bytes each = std::max<Bytes>(1, WorkOf(problem, 0).activations);
  const auto micro_batches = static_cast<double>(problem.micro_batches());
  most_in_flight_ = std::clamp(static_cast<double>(problem.room(0)) / static_cast<double>(each),
                               1.0, std::max(1.0, micro_batches));
  // As many micro-batches as fit are under way for at least a forward and a backward on each rank.
  if (work_ > 0) {
    pace_ = std::max(1.0, passes * placement.ranks / (2 * most_in_flight_) / work_);
  }
}

TimeNs Explorer::FindGap(Plan* plan) {
  TimeNs best = Decoder::kInfeasible;
  std::array<int32_t, 2> best_gaps{};
  const auto look = [&](int32_t forward, int32_t backward) {
    for (size_t i = 0; i < plan->gap_permille.size(); i += 2) {
      plan->gap_permille[i] = forward;
      plan->gap_permille[i + 1] = backward;
    }
    const TimeNs value = decoder_.Decode(*plan);
    if (value >= best) return;
    best = value;
    best_gaps = {forward, backward};
  };
  constexpr std::array<int32_t, 4> kGaps = {0, 300, 600, 1000};
  for (const int32_t gap : kGaps) look(gap, gap);
  const int32_t both = best_gaps[0];
  // The rest costs more than it brings for a plan that is far from the best.
  const bool promising =
      candidates_.empty() || best <= candidates_.best().value + candidates_.best().value / 64;
  for (const int32_t gap : kGaps) {
    if (gap == both || !promising) continue;
    look(gap, both);
    look(both, gap);
  }
  for (size_t i = 0; i < plan->gap_permille.size(); ++i) plan->gap_permille[i] = best_gaps[i % 2];
  return best;
}

void Explorer::Offer(Plan plan) {
  const TimeNs value = FindGap(&plan);
  candidates_.Offer(value, plan);
}

Policy Explorer::DrawPolicy() {
  Policy policy;
  if (policies_ == 0) return policy;
  policy.gap = Between(0, 1.2);
  policy.forward_bias = Between(-1, 1);
  if (problem_.placement.stages_per_rank > 1) policy.later_chunk_bias = Between(-1, 1);
  if (Chance(0.5)) policy.pace = Between(0.65, 1.15) * pace_;
  if (Chance(0.5)) {
    policy.cap_first = Between(1, most_in_flight_ + 1);
    policy.cap_last = Between(1, most_in_flight_ + 1);
  }
  policy.keeps_room = Chance(0.3);
  return policy;
}

// How far a nudge goes, as a share of the farthest: near as often as far.
double Explorer::DrawReach() { return std::pow(10.0, Between(-1.5, 0)); }

Policy Explorer::NudgedPolicy() {
  Policy policy = best_policy_;
  const double far = DrawReach();
  const auto nudge = [&](double reach) { return Between(-reach, reach) * far; };
  policy.gap += nudge(0.3);
  policy.forward_bias += nudge(0.3);
  if (problem_.placement.stages_per_rank > 1) policy.later_chunk_bias += nudge(0.3);
  policy.pace *= 1 + nudge(0.05);
  const bool capped = policy.cap_first < 1e8;
  if (capped) policy.cap_first += nudge(1.5);
  if (capped) policy.cap_last += nudge(1.5);
  return policy;
}

void Explorer::TryPolicy() {
  const bool anew =
      policies_ < kDrawnFirst || best_policy_value_ == Decoder::kInfeasible || Chance(kDrawnAnew);
  const Policy policy = anew ? DrawPolicy() : NudgedPolicy();
  ++policies_;
  Plan plan = empty_;
  if (!scheduler_.Run(policy, &plan)) return decoder_.CountAttempt();
  const TimeNs value = FindGap(&plan);
  candidates_.Offer(value, plan);
  if (value >= best_policy_value_) return;
  best_policy_value_ = value;
  best_policy_ = policy;
}

// In a line, K micro-batches in flight take about (ranks + 1) steps of the grid; with room for all,
// one is launched as often as the busiest rank has done the work of one.
Waves Explorer::DrawWaves() {
  Waves waves;
  waves.keeps_grid = Chance(0.6);
  waves.grid = grid_ * (Chance(0.5) ? 1 : Between(0.98, 1.1));
  if (Chance(0.5)) waves.burst = static_cast<int32_t>(Between(2, 5));
  const double by_work = work_ / std::max(1.0, grid_);
  const bool line = problem_.placement.form == PlacementForm::kLinear;
  const double by_memory = line ? (problem_.placement.ranks + 1) / most_in_flight_ : by_work;
  waves.rate = std::max(by_work, by_memory) * (Chance(0.5) ? 1 : Between(0.8, 1.3));
  waves.phase = Between(0, 1);
  if (Chance(0.5)) waves.forward_slack = Between(0, 0.3);
  if (Chance(0.5)) waves.backward_slack = Between(0, 0.3);
  if (Chance(0.5)) waves.turn_slack = Between(0, 1);
  return waves;
}

Waves Explorer::NudgedWaves() {
  Waves waves = best_waves_;
  const double far = DrawReach();
  const auto nudge = [&](double reach) { return Between(-reach, reach) * far; };
  if (Chance(0.7)) waves.rate *= 1 + nudge(0.05);
  waves.phase += nudge(0.3);
  if (Chance(0.5)) waves.grid *= 1 + nudge(0.03);
  waves.forward_slack = std::max(0.0, waves.forward_slack + nudge(0.1));
  waves.backward_slack = std::max(0.0, waves.backward_slack + nudge(0.1));
  waves.turn_slack = std::max(0.0, waves.turn_slack + nudge(0.2));
  if (Chance(0.1)) waves.burst = static_cast<int32_t>(Between(1, 5));
  return waves;
}

void Explorer::TryWaves() {
  const bool anew =
      waves_ < kDrawnFirst || best_waves_value_ == Decoder::kInfeasible || Chance(kDrawnAnew);
  const Waves waves = anew ? DrawWaves() : NudgedWaves();
  ++waves_;
  Plan plan = empty_;
  if (!MakeWaves(problem_, waves, &plan)) return decoder_.CountAttempt();
  const TimeNs value = FindGap(&plan);
  candidates_.Offer(value, plan);
  if (value >= best_waves_value_) return;
  best_waves_value_ = value;
  best_waves_ = waves;
}

// Mostly what has come to more so far.
void Explorer::Step() {
  const bool both = policies_ < kDrawnFirst || waves_ < kDrawnFirst;
  const bool policies_lead = best_policy_value_ <= best_waves_value_;
  const bool try_policy = policies_lead != Chance(kOfTheOther);
  if (both || try_policy) TryPolicy();
  if (both || !try_policy) TryWaves();
}

}  // namespace spiritlevel
