// Local search on plans: simulated annealing over small and repeated changes of who goes first.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "sim/search/decoder.h"
#include "sim/search/plan.h"

namespace spiritlevel {

class Annealer {
 public:
  Annealer(const SearchProblem& problem, Decoder& decoder, uint64_t seed);

  // How hot it begins, times `heat`, and how much all ranks count beside the one that decides: none
  // is best for all, so restarts differ.
  void SetKind(int kind, double heat);

  // Begins anew from a feasible plan of that value.
  void Start(const Plan& plan, TimeNs value);

  // One change, tried and kept or taken back; `heat` from 1 (the start) to 0 (the end).
  void Step(double heat);

  const Plan& best() const { return best_; }
  TimeNs best_value() const { return best_value_; }

 private:
  // Changes plan_; false: nothing was changed. What was changed stands in undo_.
  bool Change();
  PlacedTurn PickTurn();
  bool SwapTurns();
  bool MoveTurn();
  bool PlaceW();
  bool ChangeGap();
  bool ChangeFusion();
  bool ChangeOrder();
  void Keep(int rank);
  void TakeBack();
  double Energy(TimeNs value) const;
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  SearchProblem problem_;
  Decoder& decoder_;
  std::mt19937_64 random_;
  bool may_fuse_ = false;
  bool may_reorder_ = false;
  Plan plan_;
  std::vector<PlacedTurn> critical_;
  int changes_since_look_ = 0;
  double energy_ = 0;
  double scale_ = 0;
  double hottest_ = 0;
  double mean_weight_ = 0;
  Plan best_;
  TimeNs best_value_ = Decoder::kInfeasible;
  // As they were before the change.
  std::vector<std::pair<int, std::vector<Turn>>> kept_turns_;
  size_t num_kept_ = 0;
  std::vector<int32_t> kept_gaps_;
  std::vector<int32_t> kept_order_;
};

}  // namespace spiritlevel
