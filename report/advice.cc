#include "report/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "report/figures.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

constexpr double kBarelySplitBelow = 0.10;  // W of BW; C28 of the field's cases
constexpr double kSmallBubbleBelow = 0.03;
constexpr double kBottleneckFrom = 0.97;

using Candidates = std::vector<const Result*>;

TimeNs StepOf(const Result& r) { return r.summary->step; }
Bytes PeakOf(const Result& r) { return PeakBytes(*r.summary); }

// At least 2 % faster.
bool Gains(TimeNs step, TimeNs than) {
  return static_cast<Int128>(than) * 100 >= static_cast<Int128>(step) * 102;
}
bool WithinHalfPercent(TimeNs step, TimeNs fastest) {
  return static_cast<Int128>(step) * 1000 <= static_cast<Int128>(fastest) * 1005;
}

// Place in the catalog; what is not in it (a file) comes last.
size_t CatalogPlace(const Result& r) {
  const auto all = AllSchedules();
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const ScheduleInfo& info) { return info.name == r.schedule; });
  return static_cast<size_t>(at - all.begin());
}

bool Is1F1B(const Result& r) { return r.named && r.schedule == "1f1b"; }

const Result* Best(const Candidates& candidates) {
  if (candidates.empty()) return nullptr;
  const auto by_step = [](const Result* a, const Result* b) { return StepOf(*a) < StepOf(*b); };
  const TimeNs fastest = StepOf(**std::min_element(candidates.begin(), candidates.end(), by_step));
  const auto key = [&](const Result* r) {
    const bool tie = WithinHalfPercent(StepOf(*r), fastest);
    return std::tuple(!tie, !Is1F1B(*r), PeakOf(*r), r->summary->pp_bytes, r->summary->messages,
                      CatalogPlace(*r));
  };
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](const Result* a, const Result* b) { return key(a) < key(b); });
}

class Adviser {
 public:
  explicit Adviser(const Comparison& comparison)
      : comparison_(comparison), base_(Baseline(comparison)) {
    bool has_base = false;
    for (const Result& r : comparison.results) {
      has_base |= Is1F1B(r);
      Sort(r);
    }
    if (base_ != nullptr && !has_base) Sort(*base_);
    best_ = Dependable(Best(fitting_));
  }

  Advice Run() const {
    if (fitting_.empty() && not_fitting_.empty()) return NothingRuns();
    if (best_ == nullptr) return NothingFits();
    if (base_ == nullptr || !base_->fits) return InsteadOf1F1B();
    if (Gains(StepOf(*best_), StepOf(*base_))) return Better();
    return OneFOneBIsRight();
  }

 private:
  void Sort(const Result& r) {
    if (Ran(r)) (r.fits ? fitting_ : not_fitting_).push_back(&r);
  }

  // Where the split is not to be counted on, `best` or one that does without it and is as good.
  const Result* Dependable(const Result* best) const {
    if (best == nullptr || !barely_split()) return best;
    Candidates without;
    for (const Result* r : fitting_) {
      if (!DefersWeightGrads(*r->summary)) without.push_back(r);
    }
    const Result* other = Best(without);
    return other != nullptr && !Gains(StepOf(*best), StepOf(*other)) ? other : best;
  }

  double FactorOf(const Result& r) const { return SpeedUp(r, comparison_).value_or(1); }
  Bytes Missing(const Result& r) const {
    return HasLimit(comparison_) ? MissingBytes(*r.summary, comparison_) : 0;
  }
  bool barely_split() const { return comparison_.weight_grad_share < kBarelySplitBelow; }

  // "9.2 GiB on rank 0, 1.2 GiB over the limit of 8 GiB"
  std::string Need(const Result& r) const {
    const int rank = TightestRank(*r.summary, comparison_);
    const Bytes peak = r.summary->peak_bytes[static_cast<size_t>(rank)];
    std::string need = fmt::format("{} on rank {}", FormatMemory(peak), rank);
    // A peak outside the first iteration is not in these numbers.
    if (Missing(r) <= 0) return need;
    return need + fmt::format(", {} over the limit of {}", FormatMemory(Missing(r)),
                              FormatMemory(LimitOf(comparison_, rank)));
  }

  // Where a late rank is the fullest because weight gradients are held back, which recomputation
  // does not make smaller, 1F1B's order on that rank shows what W right after B would need.
  std::string WAtOnce(const Result& r) const {
    if (base_ == nullptr || r.placement != base_->placement) return "";
    if (!DefersWeightGrads(*r.summary)) return "";
    const auto rank = static_cast<size_t>(TightestRank(*r.summary, comparison_));
    const Bytes held = r.summary->peak_activation_bytes[rank];
    const bool late = 2 * rank >= r.summary->peak_bytes.size();
    if (!late || held < 2 * base_->summary->peak_activation_bytes[rank]) return "";
    return fmt::format(
        "; that waits for W: run W right after B on the late ranks, and rank {} "
        "needs {}",
        rank, FormatMemory(base_->summary->peak_bytes[rank]));
  }

  static std::string NoneCompared() { return "none of the schedules compared"; }

  static Advice NothingRuns() {
    return {.kind = AdviceKind::kNothingRuns,
            .text = "no schedule can run on this scenario; each row says why and what would help"};
  }

  Advice NothingFits() const {
    const Result& least = **std::min_element(
        not_fitting_.begin(), not_fitting_.end(), [this](const Result* a, const Result* b) {
          return std::pair(Missing(*a), PeakOf(*a)) < std::pair(Missing(*b), PeakOf(*b));
        });
    std::string text = fmt::format("{} fits. {} needs least: {}.",
                                   comparison_.whole_catalog ? "no named schedule" : NoneCompared(),
                                   least.schedule, Need(least) + WAtOnce(least));
    const Summary& s = *least.summary;
    const int tightest = TightestRank(s, comparison_);
    const auto rank = static_cast<size_t>(tightest);
    const Bytes fixed = s.peak_bytes[rank] - s.peak_activation_bytes[rank];
    if (HasLimit(comparison_) && fixed > LimitOf(comparison_, tightest)) {
      text += fmt::format(
          " What does not change during a step takes {} there, too much for any order of passes:"
          " use more ranks, or shard it",
          FormatMemory(fixed));
    } else {
      text += " Smaller micro-batches, recomputation or more ranks would help";
      if (!comparison_.whole_catalog) text += "; or another schedule: compare all of them";
    }
    return {.kind = AdviceKind::kNothingFits, .text = text};
  }

  Advice InsteadOf1F1B() const {
    const char* why = HasLimit(comparison_) ? "it fits, with" : "its peak is";
    std::string text = fmt::format("use {}: {} {} on rank {}", best_->schedule, why,
                                   FormatMemory(PeakOf(*best_)), best_->summary->fullest_rank());
    if (base_ == nullptr) {
      text +=
          fmt::format(", and takes {} a step; 1f1b cannot run here", FormatTime(StepOf(*best_)));
    } else {
      text += fmt::format(". 1f1b does not: it needs {}. A step takes {}, 1f1b's would take {}",
                          Need(*base_), FormatTime(StepOf(*best_)), FormatTime(StepOf(*base_)));
    }
    text += SplitWarning() + RecomputeWarning() + FasterButTooBig();
    return {.kind = AdviceKind::kInsteadOf1F1B, .schedule = best_->schedule, .text = text};
  }

  Advice Right(AdviceKind kind, std::string_view because) const {
    // The first two hold for every order there is, the others for those that were played.
    const bool bound = kind == AdviceKind::kBubbleSmall || kind == AdviceKind::kBottleneck;
    const char* where = bound || comparison_.whole_catalog ? "here" : "among those compared";
    return {.kind = kind,
            .schedule = "1f1b",
            .text = fmt::format("1f1b is right {}: {}", where, because)};
  }

  double WorkShare(TimeNs work) const {
    const TimeNs step = StepOf(*base_);
    return step == 0 ? 0 : static_cast<double>(work) / static_cast<double>(step);
  }

  Advice OneFOneBIsRight() const {
    const double bubble = 1 - WorkShare(comparison_.work_per_rank);
    if (bubble < kSmallBubbleBelow) {
      return Right(AdviceKind::kBubbleSmall,
                   fmt::format("its bubble is already small, {} of the step, and no schedule can "
                               "gain more than that",
                               Percent(bubble)));
    }
    const double slowest = WorkShare(comparison_.slowest_stage_work);
    if (slowest >= kBottleneckFrom) {
      return Right(
          AdviceKind::kBottleneck,
          fmt::format("one stage is the bottleneck. Its own work is {}, {} of the step, while the "
                      "mean of the ranks is {}: balance the stages, another order does not help",
                      FormatTime(comparison_.slowest_stage_work), Percent(slowest),
                      FormatTime(comparison_.work_per_rank)));
    }
    if (barely_split()) {
      return Right(AdviceKind::kBarelySplit,
                   fmt::format("none gains 2 %, since B and W are barely split. W is {} of "
                               "BW: the profile says the split is not happening, as when fused "
                               "layers compute weight gradients inside B",
                               Percent(comparison_.weight_grad_share)));
    }
    if (const Result* faster = FasterThan(*base_, Gains)) {
      return Right(
          AdviceKind::kNoRoom,
          fmt::format("there is no room in memory for a faster one. {} would be {} as "
                      "fast, but needs {}{}",
                      faster->schedule, Times(FactorOf(*faster)), Need(*faster), WAtOnce(*faster)));
    }
    if (const Result* v = EatenByTraffic()) return Right(AdviceKind::kTrafficEatsGain, Eaten(*v));
    return Right(AdviceKind::kNoGain, NoGain());
  }

  std::string NoGain() const {
    const std::string none = comparison_.whole_catalog ? "no named schedule" : NoneCompared();
    if (Is1F1B(*best_)) return none + " is faster by 2 %";
    return fmt::format("{} gains 2 %; the best, {}, is {:.3f}x as fast", none, best_->schedule,
                       FactorOf(*best_));
  }

  // The best of those that do not fit and are faster than `than`, if any.
  const Result* FasterThan(const Result& than, bool (*faster)(TimeNs, TimeNs)) const {
    Candidates found;
    for (const Result* r : not_fitting_) {
      if (faster(StepOf(*r), StepOf(than))) found.push_back(r);
    }
    return Best(found);
  }

  static TimeNs TransferOf(const Result& r) {
    return MeanStall(*r.summary, StallCategory::kTransfer);
  }

  // Only waits for messages themselves count, not the dependency waits that they cause further
  // down: with very slow hops this says too little, never too much.
  const Result* EatenByTraffic() const {
    Candidates found;
    for (const Result* r : fitting_) {
      const bool would_gain = Gains(StepOf(*r) - TransferOf(*r), StepOf(*base_));
      if (r->placement == "V" && would_gain) found.push_back(r);
    }
    return Best(found);
  }

  std::string Eaten(const Result& v) const {
    return fmt::format(
        "the V placement's traffic eats the gain. A rank of {} waits {} of a step of {} for "
        "messages on their way; without that it would beat 1f1b's {}",
        v.schedule, FormatTime(TransferOf(v)), FormatTime(StepOf(v)), FormatTime(StepOf(*base_)));
  }

  Advice Better() const {
    const std::string text =
        fmt::format("use {}: {} as fast as 1f1b ({} a step instead of {}){}. {}{}{}",
                    best_->schedule, Times(FactorOf(*best_)), FormatTime(StepOf(*best_)),
                    FormatTime(StepOf(*base_)), MemoryAgainst1F1B(), Mechanism(), WhatShrank(),
                    SplitWarning() + RecomputeWarning() + FasterButTooBig());
    return {.kind = AdviceKind::kBetter, .schedule = best_->schedule, .text = text};
  }

  std::string MemoryAgainst1F1B() const {
    const Bytes mine = PeakOf(*best_);
    const Bytes theirs = PeakOf(*base_);
    if (mine == 0 && theirs == 0) return "";  // the scenario gives no bytes
    if (mine == theirs) return fmt::format(", in the same memory ({})", FormatMemory(mine));
    return fmt::format(", with a peak of {} instead of {}", FormatMemory(mine),
                       FormatMemory(theirs));
  }

  static TimeNs Busiest(const Result& r) {
    const std::vector<TimeNs>& busy = r.summary->stalls.busy;
    return *std::max_element(busy.begin(), busy.end());
  }

  // Of unequal stages another placement may give every rank a fairer share, which no wait shows.
  bool BalancesTheRanks() const { return Gains(Busiest(*best_), Busiest(*base_)); }

  std::string Mechanism() const {
    if (BalancesTheRanks()) return "Its placement balances the ranks";
    const bool defers = DefersWeightGrads(*best_->summary);
    const int v = best_->stages_per_rank;
    const std::string length = v == 2 ? "half" : fmt::format("1/{}", v);
    if (best_->placement == "bidirectional") {
      return "Micro-batches enter from both ends and weight gradients fill the bubble";
    }
    if (v > 1 && defers) {
      return fmt::format("Stages {} as long cut the bubble and weight gradients fill it", length);
    }
    if (v > 1) return fmt::format("Stages {} as long cut the bubble", length);
    if (defers) return "Weight gradients fill the bubble";
    return "Its order suits these times better";
  }

  // The part of a rank's time that fell most, idle or busy.
  std::string WhatShrank() const {
    if (BalancesTheRanks()) {
      return fmt::format(": the busiest one works {} a step instead of {}",
                         FormatTime(Busiest(*best_)), FormatTime(Busiest(*base_)));
    }
    const Summary& mine = *best_->summary;
    const Summary& theirs = *base_->summary;
    std::string what = "the time in ops falls";
    TimeNs before = MeanBusy(theirs), after = MeanBusy(mine);
    for (int i = 0; i < kNumStallCategories; ++i) {
      const auto category = static_cast<StallCategory>(i);
      const TimeNs b = MeanStall(theirs, category), a = MeanStall(mine, category);
      if (b - a <= before - after) continue;
      what = category == StallCategory::kOptimizer ? "waits in " + Words(category) + " fall"
                                                   : fmt::format("{} stalls fall", Name(category));
      before = b;
      after = a;
    }
    if (after >= before) {
      return fmt::format(": one iteration takes {}, but the next begins before it ends",
                         FormatTime(mine.makespan));
    }
    return fmt::format(": {} from {} to {} a rank", what, FormatTime(before), FormatTime(after));
  }

  std::string SplitWarning() const {
    if (!barely_split()) return "";
    const std::string share = Percent(comparison_.weight_grad_share);
    if (!DefersWeightGrads(*best_->summary)) {
      return fmt::format(". Schedules that move W gain little here: it is only {} of BW", share);
    }
    return fmt::format(
        ". But do not count on it: W is only {} of BW, so the profile says the split is not "
        "happening; fused layers compute weight gradients inside B",
        share);
  }

  // C27 of the field's cases: such runs were many times slower than 1F1B.
  std::string RecomputeWarning() const {
    if (!best_->recomputes_in_split) return "";
    return ". That holds where layers are recomputed once: a runtime that walks the graph for B "
           "and "
           "again for W recomputes twice and is slower than 1f1b; compare with recompute: "
           "\"full-again-in-w\" first";
  }

  std::string FasterButTooBig() const {
    const auto clearly_faster = [](TimeNs step, TimeNs than) {
      return !WithinHalfPercent(than, step);
    };
    const Result* faster = FasterThan(*best_, clearly_faster);
    if (faster == nullptr) return "";
    const std::string factor = base_ == nullptr
                                   ? fmt::format("take {} a step", FormatTime(StepOf(*faster)))
                                   : fmt::format("be {} as fast as 1f1b", Times(FactorOf(*faster)));
    return fmt::format(". {} would {}, but needs {}{}", faster->schedule, factor, Need(*faster),
                       WAtOnce(*faster));
  }

  const Comparison& comparison_;
  const Result* base_;
  const Result* best_ = nullptr;
  Candidates fitting_;
  Candidates not_fitting_;
};

}  // namespace

Advice FindAdvice(const Comparison& comparison) {
  Advice advice = Adviser(comparison).Run();
  advice.text += '.';
  return advice;
}

std::string Advise(const Comparison& comparison) { return FindAdvice(comparison).text; }

}  // namespace spiritlevel
