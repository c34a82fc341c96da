#include "sim/search/bound.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "sim/search/bound_paths.h"
#include "sim/search/bound_rank.h"

namespace spiritlevel {
namespace {

// Of ranks times the square of the items on one: what some 50 ms are enough for.
constexpr double kThoroughWork = 2e7;

std::string_view Words(RankReason reason) {
  switch (reason) {
    case RankReason::kWork:
      return "work";
    case RankReason::kWay:
      return "longest micro-batch";
    case RankReason::kEnds:
      return "first and last micro-batches";
    case RankReason::kCycle:
      return "memory cycle";
    case RankReason::kHeld:
      return "memory held";
  }
  return "";
}

// Puts the ranks' own bounds together. Times of a rank's first op are counted from the start of its
// launch.
class AllRanks {
 public:
  explicit AllRanks(const SearchProblem& problem)
      : problem_(problem), ranks_(problem.placement.ranks), paths_(PathsOf(problem)) {
    const double items = static_cast<double>(problem.micro_batches()) *
                         static_cast<double>(problem.placement.stages_per_rank);
    const bool thorough = ranks_ * items * items <= kThoroughWork;
    for (int rank = 0; rank < ranks_; ++rank) {
      own_.push_back(BoundOf(ItemsOf(problem, paths_, rank), thorough));
      optimizer_.push_back(OptimizerOf(problem, rank));
    }
  }

  Bound Solve() {
    const Costs::Common& common = problem_.costs->common();
    const bool barrier = problem_.tail == Tail::kBarrier;
    const TimeNs most = *std::max_element(optimizer_.begin(), optimizer_.end());
    const std::vector<TimeNs> none(static_cast<size_t>(ranks_), 0);
    switch (problem_.objective) {
      case Objective::kSpan:
        return Largest([&](int r) { return Span(r, -common.launch); });
      case Objective::kMakespan:
        return Largest(
            [&](int r) { return End(r, none, barrier ? common.barrier + most : optimizer_of(r)); });
      case Objective::kStep:
        // Under a barrier no rank starts before its optimizer step is done, which is when the
        // iteration of the other ranks may long run. Without one, each rank's iterations follow
        // upon each other, and its span is that of one by itself, however late its ops are.
        return Largest([&](int r) {
          return barrier ? End(r, optimizer_, common.barrier) : Span(r, optimizer_of(r));
        });
    }
    return {};
  }

 private:
  TimeNs optimizer_of(int rank) const { return optimizer_[static_cast<size_t>(rank)]; }
  const RankBound& own(int rank) const { return own_[static_cast<size_t>(rank)]; }

  template <typename Of>
  Bound Largest(Of of) const {
    Bound best = of(0);
    for (int rank = 1; rank < ranks_; ++rank) {
      Bound bound = of(rank);
      if (bound.value > best.value) best = std::move(bound);
    }
    return best;
  }

  Bound OwnBound(int rank, TimeNs more) const {
    return {.value = own(rank).span + more,
            .reason = fmt::format("{} of rank {}", Words(own(rank).reason), rank),
            .rank = rank};
  }

  static void Raise(Bound* bound, TimeNs value, int from, int to) {
    if (value <= bound->value) return;
    bound->value = value;
    bound->reason = fmt::format("way from rank {} to rank {} and back", from, to);
  }

  // Least over micro-batches: from the start of F on rank `from` to that on `to`, a later one. Both
  // are of the ranks' first chunks, where a rank's first op is.
  TimeNs There(int from, int to) const {
    return Least([&](const Path& p) { return p.forward_start(to) - p.forward_start(from); });
  }
  // From the end of B on `from` to the end of the W of the same micro-batch on `to`, an earlier
  // one.
  TimeNs BackAndW(int from, int to) const {
    return Least([&](const Path& p) {
      return p.backward_end(to) - p.backward_end(from) + p.cost(to).weight;
    });
  }

  template <typename Of>
  TimeNs Least(Of of) const {
    TimeNs least = of(paths_.front());
    for (const Path& path : paths_) least = std::min(least, of(path));
    return least;
  }

  // Start of `rank`'s first op to end of its last, and `more`.
  Bound Span(int rank, TimeNs more) const {
    Bound bound = OwnBound(rank, more);
    for (int far = rank + 1; far < ranks_; ++far) {
      Raise(&bound, There(rank, far) + own(far).to_last_backward + BackAndW(far, rank) + more, rank,
            far);
    }
    return bound;
  }

  // The end of `rank`'s last op, where no rank acts before its `release`, and `more`.
  Bound End(int rank, const std::vector<TimeNs>& release, TimeNs more) const {
    Bound bound = OwnBound(rank, Start(rank, release) + more);
    for (int far = rank + 1; far < ranks_; ++far) {
      const TimeNs start = Start(far, release);
      Raise(&bound, start + own(far).to_last_backward + BackAndW(far, rank) + more, 0, far);
    }
    return bound;
  }

  TimeNs Start(int rank, const std::vector<TimeNs>& release) const {
    TimeNs start = 0;
    for (int from = 0; from <= rank; ++from) {
      start = std::max(start, release[static_cast<size_t>(from)] + There(from, rank));
    }
    return start;
  }

  const SearchProblem& problem_;
  const int ranks_;
  const std::vector<Path> paths_;
  std::vector<RankBound> own_;
  std::vector<TimeNs> optimizer_;
};

}  // namespace

Bound LowerBound(const SearchProblem& problem) {
  RequireFeasible(problem);
  return AllRanks(problem).Solve();
}

Certificate Certify(const SearchProblem& problem, TimeNs value) {
  return Certify(LowerBound(problem), value);
}

Certificate Certify(const Bound& bound, TimeNs value) {
  SPIRITLEVEL_CHECK(bound.value <= value, "no order is faster than a bound says");
  const auto of = static_cast<double>(bound.value > 0 ? bound.value : std::max<TimeNs>(1, value));
  return {.value = value,
          .lower_bound = bound.value,
          .gap = static_cast<double>(value - bound.value) / of,
          .proved_optimal = value == bound.value,
          .bound = bound};
}

}  // namespace spiritlevel
