#include "sim/search/zb_v_heuristic.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sim/search/zb_plan.h"

namespace spiritlevel {
namespace {

// What each rank idled in an earlier run; empty in the first.
using Bubbles = std::vector<TimeNs>;

TimeNs MostOf(const Bubbles& bubbles) {
  return bubbles.empty() ? 0 : *std::max_element(bubbles.begin(), bubbles.end());
}

// One run. F go up the V from the lower stage of rank 0 to that of the last rank and on to the
// upper stages, back to rank 0; B the other way: first those of the upper stages.
class Heuristic {
 public:
  Heuristic(const SearchProblem& problem, const ZbVOptions& options, const Bubbles& before,
            const StopSign& stop)
      : options_(options),
        stop_(stop),
        before_(before),
        most_before_(MostOf(before)),
        plan_(problem),
        ranks_(plan_.ranks()) {}

  // Empty where it was stopped.
  Orders Run() {
    PutFirstMicroBatch();
    EvenOut();
    const int all = 2 * ranks_ * plan_.micro_batches();
    while (backwards_ < all) {
      if (stop_.IsUp()) return {};
      const int before = forwards_ + backwards_;
      PutBackwards();
      PutForwards();
      SPIRITLEVEL_CHECK(forwards_ + backwards_ > before, "the oldest micro-batch can always go on");
    }
    for (int rank = 0; rank < ranks_; ++rank) plan_.PutAllW(rank);
    return plan_.TakeOrders();
  }

  Bubbles bubbles() const {
    Bubbles bubbles;
    for (int rank = 0; rank < ranks_; ++rank) bubbles.push_back(plan_.bubble(rank));
    return bubbles;
  }

 private:
  int lower(int rank) const { return plan_.lower_stage(rank); }
  int upper(int rank) const { return plan_.upper_stage(rank); }
  int stage(int rank, bool is_upper) const { return is_upper ? upper(rank) : lower(rank); }

  bool CanPutForward(int stage) const {
    return plan_.IsReady(stage, Pass::kF) && plan_.CanFit(stage);
  }

  void Put(int stage, Pass pass) {
    ++(pass == Pass::kF ? forwards_ : backwards_);
    plan_.Put(stage, pass);
  }

  // While its F comes back through the upper stages, the ranks run others of their lower stages.
  void PutFirstMicroBatch() {
    for (int rank = 0; rank < ranks_; ++rank) Put(lower(rank), Pass::kF);
    Put(upper(ranks_ - 1), Pass::kF);
    for (int rank = ranks_ - 2; rank >= 0; --rank) {
      const TimeNs arrival = plan_.ArrivalOfNext(upper(rank), Pass::kF);
      while (HasTimeForOneMore(rank, arrival) && FitsUpTo(rank)) {
        for (int r = 0; r <= rank; ++r) Put(lower(r), Pass::kF);
      }
      Put(upper(rank), Pass::kF);
    }
  }

  bool HasTimeForOneMore(int rank, TimeNs arrival) const {
    return !plan_.is_done(lower(rank), Pass::kF) &&
           plan_.end(rank) + plan_.DurationOfNext(lower(rank), Pass::kF) <= arrival;
  }

  // Each rank up to this one can hold one more, and this one keeps room for the F of both stages
  // that it will run to be as far as the ranks before it.
  bool FitsUpTo(int rank) const {
    const int next = plan_.count(lower(rank), Pass::kF);
    if (plan_.room(rank) != kNoLimit) {
      const Bytes both = plan_.activation(lower(rank), next) + plan_.activation(upper(rank), next);
      if (plan_.live(rank) + (rank + 1) * both > plan_.room(rank)) return false;
    }
    for (int r = 0; r <= rank; ++r) {
      if (!plan_.CanFit(lower(r))) return false;
    }
    return true;
  }

  // F of both stages in turn, until each rank has run as many as the one before it, and of the
  // upper stage one more: the first B comes to the last rank first.
  void EvenOut() {
    bool is_upper = false;
    for (int rank = 1; rank < ranks_; ++rank) {
      for (int in_vain = 0; in_vain < 2 && IsBehind(rank); is_upper = !is_upper) {
        const int before = forwards_;
        for (int r = ranks_ - 1; r >= rank; --r) {
          if (CanPutForward(stage(r, is_upper))) Put(stage(r, is_upper), Pass::kF);
        }
        in_vain = forwards_ > before ? 0 : in_vain + 1;
      }
    }
  }

  bool IsBehind(int rank) const {
    const auto f_upper = [&](int r) { return plan_.count(upper(r), Pass::kF); };
    const auto f = [&](int r) { return plan_.count(lower(r), Pass::kF) + f_upper(r); };
    return f(rank) < f(rank - 1) ||
           (f_upper(rank) <= f_upper(rank - 1) && f_upper(rank - 1) < plan_.micro_batches());
  }

  // Which of a rank's stages runs the next B, if its input is put.
  bool IsUpperNextForBackward(int rank) const {
    const int of_lower = plan_.count(lower(rank), Pass::kB);
    const int of_upper = plan_.count(upper(rank), Pass::kB);
    if (of_lower >= of_upper) return true;
    if (rank == ranks_ - 1) return false;
    return of_upper < plan_.micro_batches() && !plan_.IsReady(lower(rank), Pass::kB);
  }

  // A B on every rank, in the order in which they can wait for each other.
  void PutBackwards() {
    std::vector<int> of_upper;
    std::vector<int> of_lower;
    for (int rank = 0; rank < ranks_; ++rank) {
      (IsUpperNextForBackward(rank) ? of_upper : of_lower).push_back(rank);
    }
    std::reverse(of_lower.begin(), of_lower.end());
    for (const int rank : of_lower) PutBackward(rank, lower(rank), true);
    for (const int rank : of_upper) PutBackward(rank, upper(rank), options_.fill_before_b);
  }

  void PutBackward(int rank, int stage, bool fills) {
    if (!plan_.IsReady(stage, Pass::kB)) return;
    PutAfterW(rank, stage, Pass::kB, fills);
  }

  void PutForwards() {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (plan_.is_done(upper(rank), Pass::kF)) continue;
      const bool is_upper = plan_.IsReady(upper(rank), Pass::kF);
      const int next = stage(rank, is_upper);
      if (CanPutForward(next)) PutAfterW(rank, next, Pass::kF, options_.fill_before_f);
    }
  }

  void PutAfterW(int rank, int stage, Pass pass, bool fills) {
    plan_.MakeRoom(stage, pass);
    const TimeNs arrival = plan_.ArrivalOfNext(stage, pass);
    plan_.PutWUntil(rank, arrival);
    const TimeNs gap = arrival - plan_.end(rank);
    if (fills && plan_.has_waiting_w(rank) && gap > 0 && gap > Slack(rank)) plan_.PutW(rank);
    Put(stage, pass);
  }

  // How much longer the rank may idle before it idles most of all: of all up to now, or, taken
  // from the run before, in the end.
  TimeNs Slack(int rank) const {
    const TimeNs left = before_.empty() ? 0 : most_before_ - before_[static_cast<size_t>(rank)];
    return std::max(plan_.max_bubble(), left) - plan_.bubble(rank);
  }

  const ZbVOptions options_;
  const StopSign& stop_;
  const Bubbles& before_;
  const TimeNs most_before_;
  ZbPlan plan_;
  const int ranks_;
  int forwards_ = 0;
  int backwards_ = 0;
};

}  // namespace

Orders ZbVHeuristic(const SearchProblem& problem, const ZbVOptions& options, const StopSign& stop) {
  LeastSpan best(*problem.costs);
  Bubbles before;
  while (true) {
    Heuristic run(problem, options, before, stop);
    const Orders orders = run.Run();
    if (orders.empty()) break;
    const bool is_better = best.Offer(orders);
    const Bubbles bubbles = run.bubbles();
    const bool idles_less = before.empty() || MostOf(bubbles) < MostOf(before);
    if (!options.rerun || !is_better || !idles_less) break;
    before = bubbles;
  }
  return best.TakeOrders();
}

Orders BestZbVHeuristic(const SearchProblem& problem, const StopSign& stop) {
  LeastSpan best(*problem.costs);
  for (const bool before_b : {true, false}) {
    for (const bool before_f : {true, false}) {
      const Orders orders =
          ZbVHeuristic(problem, {.fill_before_b = before_b, .fill_before_f = before_f}, stop);
      if (!orders.empty()) best.Offer(orders);
    }
  }
  return best.TakeOrders();
}

Schedule ZbVAuto(const Costs& costs) {
  SPIRITLEVEL_CHECK(costs.num_stages() % 2 == 0, "V placement has two stages on each rank");
  SearchProblem problem{.placement = {PlacementForm::kV, costs.num_stages() / 2, 2},
                        .costs = &costs};
  problem.limits = LimitsInActivations(problem.placement, costs, 1);
  return Schedule(BestZbVHeuristic(problem));
}

}  // namespace spiritlevel
