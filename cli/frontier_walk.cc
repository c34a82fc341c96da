#include "cli/frontier_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "cli/frontier_lane.h"
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

std::string Words(const Placement& placement) {
  return placement.form == PlacementForm::kLooped
             ? fmt::format("looped x{}", placement.stages_per_rank)
             : std::string(Name(placement.form));
}

class Walk {
 public:
  Walk(const Scenario& scenario, const WalkOptions& options)
      : scenario_(scenario), options_(options), begin_(Clock::now()) {
    std::optional<InputError> last_error;
    for (const Placement& placement : options.placements) {
      try {
        lanes_.emplace_back(scenario, placement, options.objective, options.tail, options.ratio);
      } catch (const InputError& error) {
        out_.passed_over.push_back(Words(placement) + ": " + error.problem());
        last_error = error;
      }
    }
    if (lanes_.empty()) throw *last_error;
  }

  Frontier Run() {
    Bytes least = lanes_.front().least();
    for (const FrontierLane& lane : lanes_) least = std::min(least, lane.least());
    searches_left_ = options_.points + 1;
    SearchAll(kNoLimit, least);
    SearchAll(least, least);
    AddSchedules();
    limits_ = {least};
    if (const Bytes useful = MostUseful(); useful > least) limits_.push_back(useful);
    SearchAtHome(least);
    while (static_cast<int>(limits_.size()) < options_.points && !Stopped()) {
      const std::optional<Bytes> next = NextLimit();
      if (!next) break;
      Look(*next, least);
    }
    Polish(least);
    Finish();
    return std::move(out_);
  }

 private:
  void Look(Bytes limit, Bytes least) {
    SearchAll(limit, least);
    limits_.insert(std::upper_bound(limits_.begin(), limits_.end(), limit), limit);
  }

  // 8 GiB where that is a part of what is looked at; else the power of two nearest to a quarter.
  Bytes DefaultMore() const {
    constexpr Bytes kUsual = Bytes{8} << 30;
    const Bytes range = limits_.back() - limits_.front();
    if (range >= 2 * kUsual) return kUsual;
    Bytes more = 1;
    while (more * 4 <= range) more *= 2;
    return more;
  }

  // What the answer is about.
  void SearchAtHome(Bytes least) {
    TellOfHome();
    out_.more = options_.more.value_or(DefaultMore());
    const Bytes from = std::max(least, out_.home.value_or(least));
    for (const Bytes limit : {from, from + out_.more}) {
      const bool known = std::binary_search(limits_.begin(), limits_.end(), limit);
      if (!known && limit < limits_.back() && !Stopped()) Look(limit, least);
    }
  }

  // A limit that holds nothing is answered with the least that holds something, and said to be so.
  void TellOfHome() {
    out_.home = options_.home;
    if (!options_.ratio.empty()) {
      const int most = lanes_.front().limits().most();
      out_.home = options_.ratio[static_cast<size_t>(most)];
    }
    if (!out_.home) return;
    const auto lowest = std::min_element(
        lanes_.begin(), lanes_.end(),
        [](const FrontierLane& a, const FrontierLane& b) { return a.least() < b.least(); });
    if (lowest->least() <= *out_.home) return;
    for (int rank = 0; rank < lowest->placement().ranks; ++rank) {
      const bool own = !options_.ratio.empty();
      const Bytes has = own ? options_.ratio[static_cast<size_t>(rank)] : *out_.home;
      const Bytes needs = lowest->LeastOf(rank);
      if (has >= needs) continue;
      out_.home_refusal =
          own ? fmt::format("{}: no order fits: rank {} has {} bytes and needs at least {}",
                            options_.home_from, rank, has, needs)
              : fmt::format("{}: no order fits into {} bytes: rank {} needs at least {}",
                            options_.home_from, has, rank, needs);
      return;
    }
  }

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
    for (const FrontierLane& lane : lanes_) feasible += lane.least() <= limit ? 1 : 0;
    const double share = 1.0 / (left * std::max(1, feasible));
    const double seconds = std::max(1e-3, (options_.seconds - SecondsSpent()) * share);
    const auto evaluations =
        static_cast<int64_t>(static_cast<double>(options_.evaluations - out_.evaluations) * share);
    for (FrontierLane& lane : lanes_) {
      if (lane.least() > limit) continue;
      SearchOptions one{
          .seconds = seconds,
          .evaluations = options_.evaluations > 0 ? std::max<int64_t>(4, evaluations) : 0,
          .seed = options_.seed + static_cast<uint64_t>(searches_),
          .threads = options_.threads,
          .stop = options_.stop};
      out_.evaluations += lane.SearchUnder(limit, one);
    }
    ++searches_;
    if (options_.observer) {
      options_.observer(static_cast<int>(limits_.size()), std::min(1.0, ShareUsed()));
    }
    SPIRITLEVEL_CHECK(limit >= least, "no limit below the least feasible is searched");
  }

  // The best of all placements, and the lane that has it.
  std::pair<const FrontierLane*, const KnownOrder*> Best(Bytes limit) const {
    std::pair<const FrontierLane*, const KnownOrder*> best = {nullptr, nullptr};
    for (const FrontierLane& lane : lanes_) {
      if (lane.least() > limit) continue;
      const KnownOrder* known = lane.BestKnown(limit);
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
    for (const FrontierLane& lane : lanes_) {
      const KnownOrder* known = lane.BestKnown(kNoLimit);
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
    for (const FrontierLane& lane : lanes_) {
      const std::optional<Bytes> at = lane.StepNearest(middle, low, high);
      if (!at) continue;
      if (!nearest || std::abs(*at - middle) < std::abs(*nearest - middle)) nearest = at;
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

  Bound BoundAt(Bytes limit) {
    const Bound* lowest = nullptr;
    for (FrontierLane& lane : lanes_) {
      if (lane.least() > limit) continue;
      const Bound& bound = lane.BoundUnder(limit);
      if (lowest == nullptr || bound.value < lowest->value) lowest = &bound;
    }
    return *lowest;
  }

  double GapAt(Bytes limit) { return Certify(BoundAt(limit), BestValue(limit)).gap; }

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
    const auto looked_at = [&](const FrontierLane& lane) { return lane.placement() == placement; };
    FrontierCover cover = FrontierCover::kCovered;
    if (HasPairs(schedule.ToOrders())) {
      cover = FrontierCover::kPairs;
    } else if (std::none_of(lanes_.begin(), lanes_.end(), looked_at)) {
      cover = FrontierCover::kOtherPlacement;
    }
    const Costs costs =
        placement ? *ProblemOf(scenario_, *placement, {}).costs : CostsFor(scenario_, schedule);
    // Sums of gradients stand behind all ops; with them the evaluator cannot tell.
    if (!costs.common().gradients.empty()) return;
    Evaluator evaluator(costs);
    const Evaluator::Result& r = evaluator.Evaluate(schedule, options_.tail, kPeriodIterations);
    out_.schedules.push_back(
        {.name = std::string(info.name),
         .limit = lanes_.front().limits().Holding(r.peak_bytes),
         .value = ValueOf(r, options_.objective),
         .placement = placement ? Words(*placement) : std::string(info.placement),
         .cover = cover});
  }

  std::string FoundBy(const FrontierPoint& point) const {
    for (const FrontierSchedule& s : out_.schedules) {
      const bool is_its_like = s.covered() && s.placement == point.placement;
      if (is_its_like && s.limit <= point.limit && s.value == point.value()) return s.name;
    }
    return "search";
  }

  // Where the curve falls: what the best order under each limit looked at needs. An order known
  // from elsewhere that is clearly better than the step before it is one, too, so that no named
  // schedule of the placements lies far below the curve.
  std::map<Bytes, const KnownOrder*> Steps() const {
    constexpr double kClearly = 0.995;
    std::set<Bytes> searched;
    for (const Bytes limit : limits_) searched.insert(Best(limit).second->needs);
    searched.insert(MostUseful());
    std::vector<const KnownOrder*> known;
    for (const FrontierLane& lane : lanes_) {
      for (const KnownOrder& k : lane.known()) known.push_back(&k);
    }
    std::sort(known.begin(), known.end(), [](const KnownOrder* a, const KnownOrder* b) {
      return std::pair(a->needs, a->value) < std::pair(b->needs, b->value);
    });
    std::map<Bytes, const KnownOrder*> steps;
    for (const KnownOrder* k : known) {
      if (!steps.empty()) {
        const TimeNs last = steps.rbegin()->second->value;
        const bool clear = static_cast<double>(k->value) < kClearly * static_cast<double>(last);
        if (k->value >= last || !(clear || searched.contains(k->needs))) continue;
      }
      steps.emplace(k->needs, k);
    }
    return steps;
  }

  void Finish() {
    const std::map<Bytes, const KnownOrder*> steps = Steps();
    const std::map<Bytes, Bound> bounds = BoundsOf(steps);
    for (const FrontierLane& lane : lanes_) out_.placements.push_back(Words(lane.placement()));
    for (const auto& [limit, known] : steps) {
      const FrontierLane* lane = Best(limit).first;
      FrontierPoint point{.limit = limit,
                          .limits = lane->limits().Of(limit),
                          .certificate = Certify(bounds.at(limit), known->value),
                          .placement = Words(lane->placement()),
                          .stages_per_rank = lane->placement().stages_per_rank};
      point.found_by = FoundBy(point);
      out_.points.push_back(std::move(point));
    }
    for (const auto& [limit, bound] : bounds) out_.bounds.push_back({limit, bound.value});
    out_.interrupted = Stopped();
    out_.seconds = SecondsSpent();
  }

  // At the steps and the limits looked at. What no order can do with more memory, none can with
  // less.
  std::map<Bytes, Bound> BoundsOf(const std::map<Bytes, const KnownOrder*>& steps) {
    std::map<Bytes, Bound> bounds;
    for (const auto& [limit, known] : steps) bounds.emplace(limit, BoundAt(limit));
    const Bytes last = steps.rbegin()->first;
    for (const Bytes limit : limits_) {
      if (limit < last) bounds.emplace(limit, BoundAt(limit));
    }
    Bound later = BoundAt(kNoLimit);
    out_.bound_beyond = later.value;
    for (auto at = bounds.rbegin(); at != bounds.rend(); ++at) {
      Bound& bound = at->second;
      if (later.value > bound.value) bound = later;
      later = bound;
    }
    return bounds;
  }

  const Scenario& scenario_;
  const WalkOptions& options_;
  Clock::time_point begin_;
  std::vector<FrontierLane> lanes_;
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
