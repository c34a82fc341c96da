#include "sim/search/zb_heuristic.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/search/zb_plan.h"

namespace spiritlevel {
namespace {

// A rank's stage has the rank's number.
class Heuristic {
 public:
  Heuristic(const SearchProblem& problem, const ZbOptions& options, const StopSign& stop)
      : options_(options), stop_(stop), plan_(problem), ranks_(plan_.ranks()) {}

  // Empty where it was stopped.
  Orders Run() {
    PutFirstMicroBatch();
    for (int i = 1; i < plan_.micro_batches(); ++i) {
      if (stop_.IsUp()) return {};
      PutForwards(i);
      PutBackwards();
    }
    for (int rank = 0; rank < ranks_; ++rank) plan_.PutAllW(rank);
    return plan_.TakeOrders();
  }

 private:
  void PutFirstMicroBatch() {
    for (int rank = 0; rank < ranks_; ++rank) plan_.Put(rank, Pass::kF);
    const std::vector<int> extra = ExtraForwards();
    // The first ranks first, so that the others know when their input comes.
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int n = 0; n < extra[static_cast<size_t>(rank)]; ++n) plan_.Put(rank, Pass::kF);
    }
    PutBackwards();
  }

  // How many F each rank runs in the time in which its first B is on its way, from the last rank
  // to the first, which has longest. That their own input may come late does not count yet.
  std::vector<int> ExtraForwards() const {
    std::vector<int> extra(static_cast<size_t>(ranks_), 0);
    TimeNs made = plan_.end(ranks_ - 1) + plan_.Duration(ranks_ - 1, Pass::kB, 0);
    for (int rank = ranks_ - 2; rank >= 0; --rank) {
      const TimeNs arrival = made + plan_.hop();
      TimeNs end = plan_.end(rank);
      int& n = extra[static_cast<size_t>(rank)];
      for (const int most = plan_.ForwardsThatFit(rank); n < most; ++n) {
        const TimeNs next = end + plan_.Duration(rank, Pass::kF, plan_.count(rank, Pass::kF) + n);
        if (options_.allow_gap_before_first_b ? next > arrival : end >= arrival) break;
        end = next;
      }
      made = std::max(end, arrival) + plan_.Duration(rank, Pass::kB, 0);
    }
    // Each rank one less than the one before it, unless these are all there are: an F more would
    // come too late to run before the first B.
    for (int rank = 1; rank < ranks_; ++rank) {
      const int before = extra[static_cast<size_t>(rank) - 1];
      int& n = extra[static_cast<size_t>(rank)];
      n = std::min(n, before);
      const bool all = plan_.count(rank, Pass::kF) + n == plan_.micro_batches();
      if (n > 0 && n == before && !all) --n;
    }
    return extra;
  }

  enum class Turn { kTake, kLeaveOut };

  // Which ranks put an F before B `micro_batch`.
  std::vector<Turn> Turns(int micro_batch) const {
    std::vector<Turn> turns(static_cast<size_t>(ranks_), Turn::kLeaveOut);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (plan_.is_done(rank, Pass::kF) || !plan_.CanFit(rank)) continue;
      // Its input is not put where the rank before leaves out the one that makes it.
      if (rank > 0 && turns[static_cast<size_t>(rank) - 1] == Turn::kLeaveOut &&
          !plan_.IsReady(rank, Pass::kF)) {
        continue;
      }
      if (!WaitsForBackward(rank, micro_batch)) turns[static_cast<size_t>(rank)] = Turn::kTake;
    }
    // What nobody after it takes can wait.
    for (int rank = ranks_ - 2; rank >= 0; --rank) {
      const size_t after = static_cast<size_t>(rank) + 1;
      if (turns[after] == Turn::kLeaveOut && !plan_.is_done(rank + 1, Pass::kF)) {
        turns[after - 1] = Turn::kLeaveOut;
      }
    }
    return turns;
  }

  // Is the rank ahead of the next one, and better off with its B first?
  bool WaitsForBackward(int rank, int micro_batch) const {
    if (!options_.prioritize_b || rank == ranks_ - 1) return false;
    if (plan_.count(rank, Pass::kF) < plan_.count(rank + 1, Pass::kF) + 2) return false;
    const TimeNs arrival = plan_.end(rank + 1) + plan_.DurationOfNext(rank + 1, Pass::kF) +
                           plan_.Duration(rank + 1, Pass::kB, micro_batch) + plan_.hop();
    const TimeNs end = plan_.end(rank);
    if (end >= arrival) return true;
    if (end + plan_.DurationOfNext(rank, Pass::kF) + plan_.TimeToMakeRoom(rank) <= arrival) {
      return false;
    }
    return IsFree(rank, arrival - end);
  }

  // Idling so long does not raise the most that any rank idles.
  bool IsFree(int rank, TimeNs idle) const {
    return idle <= plan_.max_bubble() - plan_.bubble(rank);
  }

  void PutForwards(int micro_batch) {
    const std::vector<Turn> turns = Turns(micro_batch);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (turns[static_cast<size_t>(rank)] == Turn::kTake) PutAfterW(rank, Pass::kF);
    }
  }

  void PutBackwards() {
    for (int rank = ranks_ - 1; rank >= 0; --rank) {
      // Nobody waits for the first rank's B.
      if (rank == 0 && plan_.is_done(rank, Pass::kF)) plan_.PutAllW(rank);
      PutAfterW(rank, Pass::kB);
    }
  }

  void PutAfterW(int rank, Pass pass) {
    plan_.MakeRoom(rank, pass);
    const TimeNs arrival = plan_.ArrivalOfNext(rank, pass);
    plan_.PutWUntil(rank, arrival);
    const TimeNs gap = arrival - plan_.end(rank);
    if (plan_.has_waiting_w(rank) && gap > 0 && (options_.greedy_w || !IsFree(rank, gap))) {
      plan_.PutW(rank);
    }
    plan_.Put(rank, pass);
  }

  const ZbOptions options_;
  const StopSign& stop_;
  ZbPlan plan_;
  const int ranks_;
};

Schedule WithActivations(const Costs& costs, int times) {
  SearchProblem problem{.placement = {.ranks = costs.num_stages()}, .costs = &costs};
  problem.limits = LimitsInActivations(problem.placement, costs, times);
  return Schedule(BestZbHeuristic(problem));
}

}  // namespace

Orders ZbHeuristic(const SearchProblem& problem, const ZbOptions& options, const StopSign& stop) {
  return Heuristic(problem, options, stop).Run();
}

Orders BestZbHeuristic(const SearchProblem& problem, const StopSign& stop) {
  LeastSpan best(*problem.costs);
  for (const bool gap : {true, false}) {
    for (const bool prioritize_b : {true, false}) {
      for (const bool greedy_w : {true, false}) {
        const Orders orders = ZbHeuristic(
            problem,
            {.allow_gap_before_first_b = gap, .prioritize_b = prioritize_b, .greedy_w = greedy_w},
            stop);
        if (!orders.empty()) best.Offer(orders);
      }
    }
  }
  return best.TakeOrders();
}

Schedule Zb1p(const Costs& costs) { return WithActivations(costs, 1); }
Schedule Zb2p(const Costs& costs) { return WithActivations(costs, 2); }

}  // namespace spiritlevel
