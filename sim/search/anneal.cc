#include "sim/search/anneal.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace spiritlevel {
namespace {

// Temperatures, of the objective: at the end, and at the start.
constexpr double kColdest = 1e-5;
constexpr std::array<double, 3> kHottest = {6e-4, 2e-3, 2e-4};
// How often a change begins where the objective hangs on it.
constexpr double kCritical = 0.5;
// How much the mean over ranks counts beside the largest.
constexpr std::array<double, 2> kMeanWeight = {0.5, 0.05};

bool AnyFusionSaves(const Costs& costs) {
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    const int rows = costs.varies_by_micro_batch() ? costs.num_micro_batches() : 1;
    for (int i = 0; i < rows; ++i) {
      const StageCost& c = costs.of(stage, i);
      if (c.fused_backward < c.input_grad + c.weight_grad + costs.common().launch) return true;
    }
  }
  return false;
}

}  // namespace

Annealer::Annealer(const SearchProblem& problem, Decoder& decoder, uint64_t seed)
    : problem_(problem),
      decoder_(decoder),
      random_(seed),
      may_fuse_(AnyFusionSaves(*problem.costs)),
      may_reorder_(problem.costs->varies_by_micro_batch()) {
  SetKind(0, 1);
}

void Annealer::SetKind(int kind, double heat) {
  hottest_ = heat * kHottest[static_cast<size_t>(kind) % kHottest.size()];
  mean_weight_ = kMeanWeight[static_cast<size_t>(kind) % kMeanWeight.size()];
}

double Annealer::Energy(TimeNs value) const {
  double sum = 0;
  for (int rank = 0; rank < problem_.placement.ranks; ++rank) {
    sum += static_cast<double>(problem_.objective == Objective::kSpan ? decoder_.span(rank)
                                                                      : decoder_.end(rank));
  }
  return static_cast<double>(value) + mean_weight_ * sum / problem_.placement.ranks;
}

void Annealer::Start(const Plan& plan, TimeNs value) {
  plan_ = plan;
  critical_.clear();
  decoder_.Decode(plan_);
  energy_ = Energy(value);
  scale_ = static_cast<double>(value);
  best_ = plan;
  best_value_ = value;
}

void Annealer::Keep(int rank) {
  if (num_kept_ == kept_turns_.size()) kept_turns_.emplace_back();
  auto& [kept_rank, turns] = kept_turns_[num_kept_++];
  kept_rank = rank;
  turns = plan_.turns[static_cast<size_t>(rank)];
}

void Annealer::TakeBack() {
  for (size_t i = 0; i < num_kept_; ++i) {
    plan_.turns[static_cast<size_t>(kept_turns_[i].first)].swap(kept_turns_[i].second);
  }
  if (!kept_gaps_.empty()) plan_.gap_permille.swap(kept_gaps_);
  if (!kept_order_.empty()) plan_.order.swap(kept_order_);
}

void Annealer::Step(double heat) {
  num_kept_ = 0;
  kept_gaps_.clear();
  kept_order_.clear();
  if (!Change()) return decoder_.CountAttempt();
  const TimeNs value = decoder_.Decode(plan_);
  if (value == Decoder::kInfeasible) return TakeBack();
  const double energy = Energy(value);
  const double temperature = scale_ * kColdest * std::pow(hottest_ / kColdest, heat);
  if (energy > energy_ && Uniform() >= std::exp((energy_ - energy) / temperature)) {
    return TakeBack();
  }
  energy_ = energy;
  ++changes_since_look_;
  if (value < best_value_) {
    best_ = plan_;
    best_value_ = value;
  }
}

bool Annealer::Change() {
  if (may_reorder_ && Uniform() < 0.05) return ChangeOrder();
  if (may_fuse_ && Uniform() < 0.1) return ChangeFusion();
  const double which = Uniform();
  if (which < 0.025) return ChangeGap();
  if (which < 0.05) return PlaceW();
  return which < 0.65 ? SwapTurns() : MoveTurn();
}

// Half of the time one that the objective hangs on.
PlacedTurn Annealer::PickTurn() {
  constexpr int kChangesBetweenLooks = 20;
  if (critical_.empty() || changes_since_look_ >= kChangesBetweenLooks) {
    decoder_.FindCriticalTurns(plan_, &critical_);
    changes_since_look_ = 0;
  }
  if (Uniform() < kCritical && !critical_.empty()) {
    const PlacedTurn turn =
        critical_[static_cast<size_t>(Below(static_cast<int>(critical_.size())))];
    const auto length = static_cast<int>(plan_.turns[static_cast<size_t>(turn.rank)].size());
    return {turn.rank, std::min(turn.index, length - 1)};
  }
  const int rank = Below(problem_.placement.ranks);
  return {rank, Below(static_cast<int>(plan_.turns[static_cast<size_t>(rank)].size()))};
}

// In a window of turns on some ranks, wherever a turn of one kind stands before one of another,
// they change places: in steady state a change pays only if all cycles make it.
bool Annealer::SwapTurns() {
  const int ranks = problem_.placement.ranks;
  const PlacedTurn place = PickTurn();
  const int first = place.rank;
  const int count = Uniform() < 0.6 ? 1 : 1 + Below(ranks - first);
  const auto length = static_cast<int>(plan_.turns[static_cast<size_t>(first)].size());
  if (length < 2) return false;
  const int at = std::clamp(place.index - Below(2), 0, length - 2);
  const Turn one = plan_.turns[static_cast<size_t>(first)][static_cast<size_t>(at)];
  const Turn other = plan_.turns[static_cast<size_t>(first)][static_cast<size_t>(at) + 1];
  if (one == other) return false;
  const double how_far = Uniform();
  const int window = how_far < 0.5 ? 1 : how_far < 0.8 ? 1 + Below(length) : length;
  // Every n-th of them, or all.
  const int every = Uniform() < 0.6 ? 1 : 1 + Below(6);
  for (int rank = first; rank < first + count; ++rank) {
    Keep(rank);
    std::vector<Turn>& turns = plan_.turns[static_cast<size_t>(rank)];
    const int begin = rank == first ? at : std::max(0, at - Below(2 * ranks + 1) + ranks);
    const auto last = static_cast<int>(turns.size()) - 1;
    int seen = 0;
    for (int i = begin; i < std::min(last, begin + window); ++i) {
      if (turns[static_cast<size_t>(i)] != one || turns[static_cast<size_t>(i) + 1] != other) {
        continue;
      }
      if (seen++ % every == 0) {
        std::swap(turns[static_cast<size_t>(i)], turns[static_cast<size_t>(i) + 1]);
        ++i;
      }
    }
  }
  return true;
}

bool Annealer::MoveTurn() {
  const auto [rank, from] = PickTurn();
  std::vector<Turn>& turns = plan_.turns[static_cast<size_t>(rank)];
  const auto length = static_cast<int>(turns.size());
  if (length < 2) return false;
  const int far = 1 + Below(Uniform() < 0.7 ? 4 : 24);
  const int to = std::clamp(Uniform() < 0.5 ? from - far : from + far, 0, length - 1);
  if (to == from) return false;
  Keep(rank);
  const auto begin = turns.begin();
  if (to > from) {
    std::rotate(begin + from, begin + from + 1, begin + to + 1);
  } else {
    std::rotate(begin + to, begin + from, begin + from + 1);
  }
  return true;
}

// Asks for a W somewhere, or no longer.
bool Annealer::PlaceW() {
  const int rank = Below(problem_.placement.ranks);
  std::vector<Turn>& turns = plan_.turns[static_cast<size_t>(rank)];
  const auto asked = static_cast<int>(std::count(turns.begin(), turns.end(), kTurnW));
  const int most = problem_.placement.stages_per_rank * problem_.micro_batches();
  const bool less = asked > 0 && Uniform() < 0.5;
  if (!less && asked >= most) return false;
  Keep(rank);
  if (!less) {
    turns.insert(turns.begin() + Below(static_cast<int>(turns.size()) + 1), kTurnW);
    return true;
  }
  int left = Below(asked);
  turns.erase(std::find_if(turns.begin(), turns.end(),
                           [&](Turn turn) { return turn == kTurnW && left-- == 0; }));
  return true;
}

bool Annealer::ChangeGap() {
  kept_gaps_ = plan_.gap_permille;
  const auto first = static_cast<size_t>(Below(2 * problem_.placement.ranks));
  const auto gap = static_cast<int32_t>(Uniform() * 1100);
  const size_t last = Uniform() < 0.3 ? plan_.gap_permille.size() : first + 1;
  for (size_t i = first; i < last; i += 2) plan_.gap_permille[i] = gap;
  return true;
}

// One backward, or many of a rank, as one op or as two.
bool Annealer::ChangeFusion() {
  const int rank = Below(problem_.placement.ranks);
  std::vector<Turn>& turns = plan_.turns[static_cast<size_t>(rank)];
  const auto length = static_cast<int>(turns.size());
  const int at = Below(length);
  const int window = Uniform() < 0.5 ? 2 : 1 + Below(length);
  const TurnKind to = Uniform() < 0.5 ? TurnKind::kB : TurnKind::kBW;
  bool any = false;
  for (int i = at; i < std::min(length, at + window); ++i) {
    Turn& turn = turns[static_cast<size_t>(i)];
    if (!IsBackward(turn) || KindOf(turn) == to) continue;
    if (!any) Keep(rank);
    any = true;
    turn = MakeTurn(ChunkOf(turn), to);
  }
  return any;
}

bool Annealer::ChangeOrder() {
  const auto count = static_cast<int>(plan_.order.size());
  if (count < 2) return false;
  kept_order_ = plan_.order;
  std::swap(plan_.order[static_cast<size_t>(Below(count))],
            plan_.order[static_cast<size_t>(Below(count))]);
  return true;
}

}  // namespace spiritlevel
