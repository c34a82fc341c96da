#include "sim/search/policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spiritlevel {
namespace {

constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
constexpr int kTakesW = -1;

}  // namespace

ListScheduler::ListScheduler(const SearchProblem& problem)
    : problem_(problem), micro_batches_(problem.micro_batches()) {
  const Placement& placement = problem.placement;
  ranks_.resize(static_cast<size_t>(placement.ranks));
  for (int rank = 0; rank < placement.ranks; ++rank) room_.push_back(problem.room(rank));
  arrivals_.resize(2 * static_cast<size_t>(placement.num_stages()) *
                   static_cast<size_t>(micro_batches_));
}

TimeNs& ListScheduler::Arrival(int stage, bool backward, int32_t place) {
  const auto row = static_cast<size_t>(stage + (backward ? problem_.placement.num_stages() : 0));
  return arrivals_[row * static_cast<size_t>(micro_batches_) + static_cast<size_t>(place)];
}

const StageCost& ListScheduler::CostOf(int stage, int32_t place) const {
  return problem_.costs->of(stage, plan_->order[static_cast<size_t>(place)]);
}

bool ListScheduler::Run(const Policy& policy, Plan* plan) {
  policy_ = policy;
  plan_ = plan;
  const Placement& placement = problem_.placement;
  const int stages = placement.num_stages();
  std::fill(arrivals_.begin(), arrivals_.end(), kNever);
  for (int32_t i = 0; i < micro_batches_; ++i) {
    Arrival(0, false, i) = 0;
    Arrival(stages - 1, true, i) = 0;
  }
  const StageCost& first = problem_.costs->of(0, plan->order[0]);
  const TimeNs work = first.forward + first.input_grad + first.weight_grad;
  pace_ = static_cast<TimeNs>(policy.pace * placement.stages_per_rank * static_cast<double>(work));
  caps_.clear();
  plan->turns.assign(ranks_.size(), {});
  for (int rank = 0; rank < placement.ranks; ++rank) {
    const double along = placement.ranks > 1 ? double(rank) / (placement.ranks - 1) : 0;
    const double cap = policy.cap_first + along * (policy.cap_last - policy.cap_first);
    caps_.push_back(static_cast<int32_t>(std::clamp(std::round(cap), 1.0, 1e9)));
    const auto chunks = static_cast<size_t>(placement.stages_per_rank);
    ranks_[static_cast<size_t>(rank)] = {.forwards = std::vector<int32_t>(chunks, 0),
                                         .backwards = std::vector<int32_t>(chunks, 0),
                                         .waiting_w = {}};
  }
  for (int rank = 0; rank < placement.ranks; ++rank) Decide(rank);
  while (true) {
    int next = 0;
    for (int rank = 1; rank < placement.ranks; ++rank) {
      if (ranks_[static_cast<size_t>(rank)].acts_at < ranks_[static_cast<size_t>(next)].acts_at) {
        next = rank;
      }
    }
    if (ranks_[static_cast<size_t>(next)].acts_at == kNever) break;
    Act(next, plan);
  }
  const size_t all =
      2 * static_cast<size_t>(placement.stages_per_rank) * static_cast<size_t>(micro_batches_);
  return std::all_of(plan->turns.begin(), plan->turns.end(),
                     [all](const std::vector<Turn>& turns) { return turns.size() == all; });
}

bool ListScheduler::MayForward(const Rank& rank, int index, int chunk,
                               const StageCost& cost) const {
  const Placement& placement = problem_.placement;
  const auto last = static_cast<size_t>(placement.stages_per_rank) - 1;
  if (chunk == 0 && rank.forwards[0] - rank.backwards[0] >= caps_[static_cast<size_t>(index)]) {
    return false;
  }
  Bytes needed = cost.activation + cost.transient[static_cast<size_t>(Pass::kF)];
  if (policy_.keeps_room || rank.forwards[last] == rank.backwards[last]) {
    for (int c = chunk + 1; c < placement.stages_per_rank; ++c) {
      needed += CostOf(placement.stage_of(index, c), rank.forwards[static_cast<size_t>(chunk)])
                    .activation;
    }
  }
  return rank.live <= room_[static_cast<size_t>(index)] - needed;
}

void ListScheduler::Decide(int index) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  const Placement& placement = problem_.placement;
  double best_key = std::numeric_limits<double>::infinity();
  TimeNs best_start = kNever;
  rank.turn = kTakesW;
  for (int chunk = 0; chunk < placement.stages_per_rank; ++chunk) {
    const auto c = static_cast<size_t>(chunk);
    const int stage = placement.stage_of(index, chunk);
    const auto consider = [&](TurnKind kind, TimeNs start, double key) {
      if (key >= best_key) return;
      best_key = key;
      best_start = start;
      rank.turn = MakeTurn(chunk, kind);
    };
    if (rank.backwards[c] < rank.forwards[c]) {
      const TimeNs arrival = Arrival(stage, true, rank.backwards[c]);
      const StageCost& cost = CostOf(stage, rank.backwards[c]);
      const Bytes more = std::max<Bytes>(0, cost.weight_state - cost.activation) +
                         cost.transient[static_cast<size_t>(Pass::kB)];
      if (arrival != kNever && rank.live <= room_[static_cast<size_t>(index)] - more) {
        const TimeNs start = std::max(rank.free, arrival);
        // Backwards of later chunks lie on the way to those of earlier ones.
        const double bias = policy_.later_chunk_bias * (placement.stages_per_rank - 1 - chunk);
        consider(TurnKind::kB, start,
                 static_cast<double>(start) + bias * static_cast<double>(cost.forward));
      }
    }
    if (rank.forwards[c] < micro_batches_) {
      TimeNs arrival = Arrival(stage, false, rank.forwards[c]);
      const StageCost& cost = CostOf(stage, rank.forwards[c]);
      if (arrival != kNever && MayForward(rank, index, chunk, cost)) {
        if (stage == 0) arrival = std::max(arrival, pace_ * rank.forwards[c]);
        const TimeNs start = std::max(rank.free, arrival);
        const double bias = policy_.forward_bias + policy_.later_chunk_bias * chunk;
        consider(TurnKind::kF, start,
                 static_cast<double>(start) + bias * static_cast<double>(cost.forward));
      }
    }
  }
  rank.acts_at = best_start;
  if (rank.w_head == rank.waiting_w.size()) return;
  const int32_t w = rank.waiting_w[rank.w_head];
  const int stage = placement.stage_of(index, w / micro_batches_);
  const auto wait = static_cast<TimeNs>(
      policy_.gap * static_cast<double>(CostOf(stage, w % micro_batches_).weight_grad));
  if (best_start != kNever && best_start <= rank.free + wait) return;
  rank.turn = kTakesW;
  rank.acts_at = rank.free;
}

void ListScheduler::Act(int index, Plan* plan) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  const Placement& placement = problem_.placement;
  if (rank.turn == kTakesW) {
    const int32_t w = rank.waiting_w[rank.w_head++];
    const StageCost& cost =
        CostOf(placement.stage_of(index, w / micro_batches_), w % micro_batches_);
    rank.free += cost.weight_grad + problem_.costs->common().launch;
    rank.live -= cost.weight_state;
    Decide(index);
    return;
  }
  const auto turn = static_cast<Turn>(rank.turn);
  plan->turns[static_cast<size_t>(index)].push_back(turn);
  const int chunk = ChunkOf(turn);
  const auto c = static_cast<size_t>(chunk);
  const int stage = placement.stage_of(index, chunk);
  const bool forward = KindOf(turn) == TurnKind::kF;
  int32_t& place = (forward ? rank.forwards : rank.backwards)[c];
  const StageCost& cost = CostOf(stage, place);
  const TimeNs took = forward ? cost.forward : cost.input_grad;
  rank.free = rank.acts_at + took + problem_.costs->common().launch;
  rank.live += forward ? cost.activation : cost.weight_state - cost.activation;
  if (!forward) rank.waiting_w.push_back(chunk * micro_batches_ + place);
  const int neighbour = forward ? stage + 1 : stage - 1;
  const int32_t done = place++;
  if (neighbour >= 0 && neighbour < placement.num_stages()) {
    const int reader = placement.rank_of(neighbour);
    const HopCost& hop = problem_.costs->common().hop;
    Arrival(neighbour, !forward, done) = rank.free + (reader == index ? 0 : hop.latency + hop.busy);
    if (reader != index) Decide(reader);
  }
  Decide(index);
}

}  // namespace spiritlevel
