#include "cli/frontier_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "cli/play.h"
#include "cli/searching.h"
#include "sim/analysis/summary.h"
#include "sim/evaluate.h"
#include "sim/schedules/catalog.h"
#include "sim/search/bound.h"
#include "sim/search/search.h"

namespace spiritlevel {
namespace {

using Clock = std::chrono::steady_clock;

// Of candidates between two limits, to one of which a split goes.
constexpr int kMostCandidates = 4096;

TimeNs ValueOf(const Evaluator::Result& result, Objective objective) {
  switch (objective) {
    case Objective::kSpan:
      return result.max_rank_span;
    case Objective::kMakespan:
      return result.makespan;
    case Objective::kStep:
      return result.period;
  }
  return 0;
}

std::string Words(const Placement& placement) {
  return placement.form == PlacementForm::kLooped
             ? fmt::format("looped x{}", placement.stages_per_rank)
             : std::string(Name(placement.form));
}

bool HasPairs(const Orders& orders) {
  return std::any_of(orders.begin(), orders.end(), [](const std::vector<Op>& ops) {
    return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.overlaps_next; });
  });
}

// One number for the limits of all ranks: that of the rank which has most.
class Limits {
 public:
  Limits(const std::vector<Bytes>& statics, const std::vector<Bytes>& ratio)
      : statics_(statics), ratio_(ratio) {
    for (size_t r = 1; r < ratio.size(); ++r) {
      if (Share(r) > Share(most_)) most_ = r;
    }
  }

  std::vector<Bytes> Of(Bytes limit) const {
    std::vector<Bytes> limits(statics_.size(), limit);
    if (limit == kNoLimit || ratio_.empty()) return limits;
    for (size_t r = 0; r < limits.size(); ++r) {
      const Int128 room = static_cast<Int128>(limit - statics_[most_]) * Share(r) / Share(most_);
      limits[r] = statics_[r] + static_cast<Bytes>(room);
    }
    return limits;
  }

  // The least number that gives each rank what it needs.
  Bytes Holding(const std::vector<Bytes>& needs) const {
    if (ratio_.empty()) return *std::max_element(needs.begin(), needs.end());
    Bytes low = statics_[most_] - 1;
    Bytes high = kMaxBytes;
    while (high - low > 1) {
      const Bytes middle = low + (high - low) / 2;
      (Holds(middle, needs) ? high : low) = middle;
    }
    return high;
  }

  bool Holds(Bytes limit, const std::vector<Bytes>& needs) const {
    const std::vector<Bytes> limits = Of(limit);
    for (size_t r = 0; r < needs.size(); ++r) {
      if (needs[r] > limits[r]) return false;
    }
    return true;
  }

  int most() const { return static_cast<int>(most_); }

 private:
  Bytes Share(size_t rank) const { return ratio_[rank] - statics_[rank]; }

  std::vector<Bytes> statics_;
  std::vector<Bytes> ratio_;
  size_t most_ = 0;
};

std::vector<Bytes> StaticsOf(const ScenarioProblem& made) {
  const int ranks = made.problem.placement.ranks;
  SearchProblem problem = made.problem;
  problem.limits.assign(static_cast<size_t>(ranks), 0);
  std::vector<Bytes> statics;
  for (int rank = 0; rank < ranks; ++rank) statics.push_back(-problem.room(rank));
  return statics;
}

// An order that was found, and what it needs.
struct Known {
  Orders orders;
  TimeNs value = 0;
  Bytes needs = 0;
};

// One placement's part of the walk.
class Lane {
 public:
  Lane(const Scenario& scenario, const Placement& placement, const WalkOptions& options)
      : scenario_(scenario),
        made_(ProblemOf(scenario, placement,
                        std::vector<Bytes>(static_cast<size_t>(placement.ranks), kNoLimit))),
        limits_(CheckedLimits(options)) {
    made_.problem.objective = options.objective;
    made_.problem.tail = options.tail;
    std::vector<Bytes> least;
    for (int rank = 0; rank < placement.ranks; ++rank) {
      least.push_back(LeastFeasibleLimit(made_.problem, rank));
    }
    least_ = limits_.Holding(least);
    beyond_ = BoundUnder(kNoLimit);
  }

  const Placement& placement() const { return made_.problem.placement; }
  Bytes least() const { return least_; }
  const Limits& limits() const { return limits_; }
  const Bound& beyond() const { return beyond_; }

  Bound BoundUnder(Bytes limit) const {
    SearchProblem problem = made_.problem;
    problem.limits = limits_.Of(limit);
    return LowerBound(problem);
  }

  // The best order under `limit` that is known already; null for none.
  const Known* BestKnown(Bytes limit) const {
    const Known* best = nullptr;
    for (const Known& k : known_) {
      if (k.needs <= limit && (best == nullptr || k.value < best->value)) best = &k;
    }
    return best;
  }

  // Adds what it finds to what is known.
  void SearchUnder(Bytes limit, SearchOptions options, int64_t* evaluations) {
    SearchProblem problem = made_.problem;
    problem.limits = limits_.Of(limit);
    options.lower_bound = LowerBound(problem).value;
    options.seeds = SeedsFor(scenario_, problem);
    // Two ops that overlap take less than bounds count for them, and no search makes such pairs.
    std::erase_if(options.seeds, HasPairs);
    for (const Orders& seed : options.seeds) Keep(seed);
    AddNeighbours(limit, &options.seeds);
    SearchAnswer answer = Search(problem, options);
    *evaluations += answer.evaluations;
    Keep(std::move(answer.orders));
  }

  // Limits between which nothing changes: what a rank holds is sums of activations and W-states.
  std::vector<Bytes> CandidatesBetween(Bytes low, Bytes high) const {
    std::set<Bytes> found;
    const Costs& costs = *made_.costs;
    const int rank = limits_.most();
    for (int chunk = 0; chunk < placement().stages_per_rank; ++chunk) {
      const StageCost& c = costs.of(placement().stage_of(rank, chunk), 0);
      AddSums(low, high, c.activation, c.weight_state, &found);
    }
    return {found.begin(), found.end()};
  }

 private:
  Limits CheckedLimits(const WalkOptions& options) const {
    const std::vector<Bytes> statics = StaticsOf(made_);
    for (size_t r = 0; r < options.ratio.size(); ++r) {
      if (options.ratio[r] > statics[r]) continue;
      throw InputError(fmt::format("--memory-limit: {} bytes of rank {} do not hold its static "
                                   "memory, {} bytes",
                                   options.ratio[r], r, statics[r]),
                       "each rank needs room beside it");
    }
    return {statics, options.ratio};
  }

  // low + i * activation + j * weight_state, each as often as a micro-batch can wait.
  void AddSums(Bytes low, Bytes high, Bytes activation, Bytes weight_state,
               std::set<Bytes>* found) const {
    const int most = std::min(made_.problem.micro_batches(), 64);
    for (int i = 0; i <= most; ++i) {
      for (int j = 0; j <= most && i + j <= 2 * most; ++j) {
        const Bytes at = least_ + i * activation + j * weight_state;
        if (at >= high || (weight_state == 0 && j > 0)) break;
        if (at > low) found->insert(at);
        if (found->size() > kMostCandidates) return;
      }
      if (activation == 0) break;
    }
  }

  // Nearest first: the best that fits, and the few that need a little more.
  void AddNeighbours(Bytes limit, std::vector<Orders>* seeds) const {
    if (const Known* best = BestKnown(limit)) seeds->push_back(best->orders);
    std::vector<const Known*> above;
    for (const Known& k : known_) {
      if (k.needs > limit) above.push_back(&k);
    }
    std::sort(above.begin(), above.end(), [](const Known* a, const Known* b) {
      return std::pair(a->needs, a->value) < std::pair(b->needs, b->value);
    });
    for (size_t i = 0; i < std::min<size_t>(2, above.size()); ++i) {
      seeds->push_back(above[i]->orders);
    }
  }

  void Keep(Orders orders) {
    Evaluator evaluator(*made_.costs);
    const Schedule schedule(orders);
    const Evaluator::Result& result =
        evaluator.Evaluate(schedule, made_.problem.tail, kPeriodIterations);
    Known one{.orders = std::move(orders),
              .value = ValueOf(result, made_.problem.objective),
              .needs = limits_.Holding(result.peak_bytes)};
    for (const Known& k : known_) {
      if (k.needs <= one.needs && k.value <= one.value) return;
    }
    std::erase_if(known_,
                  [&](const Known& k) { return k.needs >= one.needs && k.value >= one.value; });
    known_.push_back(std::move(one));
  }

  const Scenario& scenario_;
  ScenarioProblem made_;
  Limits limits_;
  Bytes least_ = 0;
  Bound beyond_;
  std::vector<Known> known_;  // none of which is as good as another and needs no more
};

class Walk {
 public:
  Walk(const Scenario& scenario, const WalkOptions& options)
      : scenario_(scenario), options_(options), begin_(Clock::now()) {
    std::optional<InputError> last_error;
    for (const Placement& placement : options.placements) {
      try {
        lanes_.emplace_back(scenario, placement, options);
      } catch (const InputError& error) {
        out_.passed_over.push_back(Words(placement) + ": " + error.problem());
        last_error = error;
      }
    }
    if (lanes_.empty()) throw *last_error;
  }

  Frontier Run() {
    Bytes least = lanes_.front().least();
    for (const Lane& lane : lanes_) least = std::min(least, lane.least());
    searches_left_ = options_.points + 1;
    SearchAll(kNoLimit, least);
    SearchAll(least, least);
    AddSchedules();
    limits_ = {least};
    if (const Bytes useful = MostUseful(); useful > least) limits_.push_back(useful);
    while (static_cast<int>(limits_.size()) < options_.points && !Stopped()) {
      const std::optional<Bytes> next = NextLimit();
      if (!next) break;
      SearchAll(*next, least);
      limits_.insert(std::upper_bound(limits_.begin(), limits_.end(), *next), *next);
    }
    Polish(least);
    Finish();
    return std::move(out_);
  }

 private:
  double SecondsSpent() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  bool Stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  double ShareUsed() const {
    return options_.evaluations > 0
               ? static_cast<double>(out_.evaluations) / static_cast<double>(options_.evaluations)
               : SecondsSpent() / options_.seconds;
  }

  // An even share of what is left; without a limit it is the largest limit that matters, and the
  // seeds alone may do.
  void SearchAll(Bytes limit, Bytes least) {
    const int left = std::max(1, searches_left_--);
    int feasible = 0;
    for (const Lane& lane : lanes_) feasible += lane.least() <= limit ? 1 : 0;
    const double share = 1.0 / (left * std::max(1, feasible));
    const double seconds = std::max(1e-3, (options_.seconds - SecondsSpent()) * share);
    const auto evaluations =
        static_cast<int64_t>(static_cast<double>(options_.evaluations - out_.evaluations) * share);
    for (Lane& lane : lanes_) {
      if (lane.least() > limit) continue;
      SearchOptions one{
          .seconds = seconds,
          .evaluations = options_.evaluations > 0 ? std::max<int64_t>(4, evaluations) : 0,
          .seed = options_.seed + static_cast<uint64_t>(searches_),
          .threads = options_.threads,
          .stop = options_.stop};
      lane.SearchUnder(limit, one, &out_.evaluations);
    }
    ++searches_;
    if (options_.observer) {
      options_.observer(static_cast<int>(limits_.size()), std::min(1.0, ShareUsed()));
    }
    SPIRITLEVEL_CHECK(limit >= least, "no limit below the least feasible is searched");
  }

  // The best of all placements, and the lane that has it.
  std::pair<const Lane*, const Known*> Best(Bytes limit) const {
    std::pair<const Lane*, const Known*> best = {nullptr, nullptr};
    for (const Lane& lane : lanes_) {
      if (lane.least() > limit) continue;
      const Known* known = lane.BestKnown(limit);
      if (known == nullptr || (best.second != nullptr && best.second->value <= known->value)) {
        continue;
      }
      best = {&lane, known};
    }
    return best;
  }

  TimeNs BestValue(Bytes limit) const { return Best(limit).second->value; }

  // The least limit that is known to hold the best order of all.
  Bytes MostUseful() const {
    const TimeNs least_value = BestValue(kNoLimit);
    Bytes useful = kNoLimit;
    for (const Lane& lane : lanes_) {
      const Known* known = lane.BestKnown(kNoLimit);
      if (known != nullptr && known->value == least_value) useful = std::min(useful, known->needs);
    }
    return useful;
  }

  // Splits the largest rectangle, of memory and log time, in which the curve may still run.
  std::optional<Bytes> NextLimit() const {
    const double width = static_cast<double>(std::max<Bytes>(1, limits_.back() - limits_.front()));
    double largest = 0;
    std::optional<Bytes> next;
    for (size_t i = 0; i + 1 < limits_.size(); ++i) {
      const double drop =
          std::log(static_cast<double>(std::max<TimeNs>(1, BestValue(limits_[i])))) -
          std::log(static_cast<double>(std::max<TimeNs>(1, BestValue(limits_[i + 1]))));
      const double area = drop * (static_cast<double>(limits_[i + 1] - limits_[i]) / width);
      if (area <= largest) continue;
      const std::optional<Bytes> split = SplitOf(limits_[i], limits_[i + 1]);
      if (!split) continue;
      largest = area;
      next = split;
    }
    return next;
  }

  std::optional<Bytes> SplitOf(Bytes low, Bytes high) const {
    const Bytes middle = low + (high - low) / 2;
    std::optional<Bytes> nearest;
    for (const Lane& lane : lanes_) {
      for (const Bytes at : lane.CandidatesBetween(low, high)) {
        if (!nearest || std::abs(at - middle) < std::abs(*nearest - middle)) nearest = at;
      }
    }
    return nearest;
  }

  // What is left of the budget goes where the gap is largest, round by round.
  void Polish(Bytes least) {
    std::vector<int> visits(limits_.size(), 0);
    constexpr double kEnough = 0.97;
    while (!Stopped() && ShareUsed() < kEnough) {
      double most = 0;
      size_t at = 0;
      for (size_t i = 0; i < limits_.size(); ++i) {
        const double gap = GapAt(limits_[i]) / (1 + visits[i]);
        if (gap > most) {
          most = gap;
          at = i;
        }
      }
      if (most == 0) return;  // all proved
      ++visits[at];
      searches_left_ = std::max(2, static_cast<int>(limits_.size()) / 4);
      SearchAll(limits_[at], least);
    }
  }

  Bound BoundAt(Bytes limit) const {
    std::optional<Bound> lowest;
    for (const Lane& lane : lanes_) {
      if (lane.least() > limit) continue;
      const Bound bound = limit == kNoLimit ? lane.beyond() : lane.BoundUnder(limit);
      if (!lowest || bound.value < lowest->value) lowest = bound;
    }
    return *lowest;
  }

  double GapAt(Bytes limit) const { return Certify(BoundAt(limit), BestValue(limit)).gap; }

  // Where a placement lies on the axis, so do all: they share the ratio, and most of the memory.
  void AddSchedules() {
    for (const ScheduleInfo& info : AllSchedules()) {
      try {
        const Schedule schedule = MakeSchedule(scenario_, NamedSchedule(info.name));
        AddSchedule(info, schedule);
      } catch (const InputError&) {
        // It cannot run here.
      }
    }
    std::stable_sort(out_.schedules.begin(), out_.schedules.end(),
                     [](const FrontierSchedule& a, const FrontierSchedule& b) {
                       return std::pair(a.limit, a.value) < std::pair(b.limit, b.value);
                     });
  }

  void AddSchedule(const ScheduleInfo& info, const Schedule& schedule) {
    const std::optional<Placement> placement = PlacementOf(schedule);
    const Costs costs =
        placement ? *ProblemOf(scenario_, *placement, {}).costs : CostsFor(scenario_, schedule);
    // Sums of gradients stand behind all ops; with them the evaluator cannot tell.
    if (!costs.common().gradients.empty()) return;
    Evaluator evaluator(costs);
    const Evaluator::Result& r = evaluator.Evaluate(schedule, options_.tail, kPeriodIterations);
    out_.schedules.push_back({.name = std::string(info.name),
                              .limit = lanes_.front().limits().Holding(r.peak_bytes),
                              .value = ValueOf(r, options_.objective),
                              .placement = std::string(info.placement)});
  }

  std::string FoundBy(const FrontierPoint& point) const {
    for (const FrontierSchedule& s : out_.schedules) {
      if (s.limit <= point.limit && s.value == point.value) return s.name;
    }
    return "search";
  }

  void Finish() {
    const TimeNs last_value = BestValue(kNoLimit);
    out_.bound_beyond = BoundAt(kNoLimit).value;
    // What was found under one limit may need less than the next asks for.
    if (const Bytes useful = MostUseful(); useful < limits_.back()) {
      std::erase_if(limits_, [&](Bytes limit) { return limit >= useful; });
      limits_.push_back(useful);
    }
    for (const Bytes limit : limits_) {
      const auto [lane, known] = Best(limit);
      const Bound bound = BoundAt(limit);
      const Certificate c = Certify(bound, known->value);
      FrontierPoint point{.limit = limit,
                          .limits = lane->limits().Of(limit),
                          .value = c.value,
                          .lower_bound = c.lower_bound,
                          .reason = bound.reason,
                          .gap = c.gap,
                          .proved_optimal = c.proved_optimal,
                          .placement = Words(lane->placement()),
                          .stages_per_rank = lane->placement().stages_per_rank,
                          .needs = known->needs};
      point.found_by = FoundBy(point);
      out_.points.push_back(std::move(point));
      if (known->value == last_value) break;
    }
    RaiseBounds();
    out_.interrupted = Stopped();
    out_.seconds = SecondsSpent();
  }

  // What no order can do with more memory, none can with less.
  void RaiseBounds() {
    TimeNs later = out_.bound_beyond;
    std::string reason;
    for (size_t i = out_.points.size(); i-- > 0;) {
      FrontierPoint& p = out_.points[i];
      if (later > p.lower_bound) {
        const Certificate c = Certify(Bound{.value = later, .reason = reason}, p.value);
        p.lower_bound = later;
        p.gap = c.gap;
        p.proved_optimal = c.proved_optimal;
        if (!reason.empty()) p.reason = reason;
      }
      later = p.lower_bound;
      reason = p.reason;
    }
  }

  const Scenario& scenario_;
  const WalkOptions& options_;
  Clock::time_point begin_;
  std::vector<Lane> lanes_;
  std::vector<Bytes> limits_;  // ascending
  int searches_left_ = 1;
  int searches_ = 0;
  Frontier out_;
};

}  // namespace

Frontier WalkFrontier(const Scenario& scenario, const WalkOptions& options) {
  Frontier frontier = Walk(scenario, options).Run();
  frontier.scenario = scenario.name;
  frontier.ranks = scenario.ranks;
  frontier.micro_batches = scenario.micro_batches;
  frontier.objective = std::string(Name(options.objective));
  frontier.tail = std::string(Name(options.tail));
  frontier.own_ratio = !options.ratio.empty();
  frontier.seed = options.seed;
  return frontier;
}

}  // namespace spiritlevel
