#include "report/five_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/advice.h"
#include "report/figures.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

class Summariser {
 public:
  explicit Summariser(const Comparison& comparison)
      : comparison_(comparison), advice_(FindAdvice(comparison)), advised_(FindAdvised()) {}

  std::string ToString() const {
    return Line("use", Best()) + Line("gain", Against1F1B()) + Line("limits", Limits()) +
           Line("memory", Memory()) + Line("how sure", HowSure());
  }

 private:
  static std::string Line(std::string_view what, const std::string& text) {
    constexpr size_t kIndent = 10;
    return PadRight(what, kIndent) + text + '\n';
  }

  const Result* FindAdvised() const {
    if (advice_.schedule.empty()) return nullptr;
    for (const Result& r : comparison_.results) {
      if (r.summary && r.schedule == advice_.schedule) return &r;
    }
    return Baseline(comparison_);
  }

  std::string Best() const {
    if (advised_ == nullptr) {
      const bool ran = std::any_of(comparison_.results.begin(), comparison_.results.end(), Ran);
      return !ran          ? "no schedule: none can run on this scenario"
             : IsOnlyOne() ? "no schedule: this one does not fit into the memory limit"
                           : "no schedule: none fits into the memory limit";
    }
    return fmt::format("{}: {} of {} micro-batches takes {}{}", advised_->schedule,
                       comparison_.rejection > 0
                           ? fmt::format("the expected step at q = {}", comparison_.rejection)
                           : "a step",
                       comparison_.micro_batches, FormatTime(advised_->summary->step),
                       BehindTheFastest());
  }

  bool IsOnlyOne() const { return comparison_.results.size() == 1; }

  // ", within 0.4 % of the fastest, in less memory" where another that fits is faster.
  std::string BehindTheFastest() const {
    const Result* fastest = advised_;
    for (const Result& r : comparison_.results) {
      if (Ran(r) && r.fits && r.summary->step < fastest->summary->step) fastest = &r;
    }
    if (fastest == advised_ || fastest->summary->step == 0) return "";
    const double behind =
        static_cast<double>(advised_->summary->step) / static_cast<double>(fastest->summary->step) -
        1;
    const bool smaller = PeakBytes(*advised_->summary) < PeakBytes(*fastest->summary);
    return fmt::format(", within {:.1f} % of the fastest{}",
                       std::max(0.1, std::ceil(behind * 1000) / 10),
                       smaller ? ", in less memory" : "");
  }

  // Over its limit, where there is one.
  Bytes Needed(const Result& r) const {
    return HasLimit(comparison_) ? MissingBytes(*r.summary, comparison_) : PeakBytes(*r.summary);
  }

  const Result* Smallest() const {
    const Result* least = nullptr;
    for (const Result& r : comparison_.results) {
      if (!Ran(r)) continue;
      if (least == nullptr || Needed(r) < Needed(*least)) least = &r;
    }
    return least;
  }

  std::string Against1F1B() const {
    const Result* const base = Baseline(comparison_);
    if (base == nullptr) return "1f1b cannot run here, so there is nothing to compare with";
    const std::string step = FormatTime(base->summary->step);
    const std::string most = fmt::format("no schedule can be more than {}",
                                         Times(LargestSpeedUp(comparison_).value_or(1)));
    if (advised_ == nullptr) return fmt::format("1f1b would take {} a step; {}", step, most);
    if (advised_->schedule == base->schedule) {
      return fmt::format("none worth having over 1f1b; {}", most);
    }
    return fmt::format("{} as fast as 1f1b with {} a step; {}",
                       Times(SpeedUp(*advised_, comparison_).value_or(1)), step, most);
  }

  // What keeps its ranks from computing all the time.
  std::string Limits() const {
    if (advised_ == nullptr) return "there is no run to look at";
    const Summary& s = *advised_->summary;
    auto largest = StallCategory::kDependency;
    for (int i = 0; i < kNumStallCategories; ++i) {
      const auto category = static_cast<StallCategory>(i);
      if (SumOfStalls(s, category) > SumOfStalls(s, largest)) largest = category;
    }
    const auto busiest = std::max_element(s.stalls.busy.begin(), s.stalls.busy.end());
    return fmt::format("most idle time is {}, {} of all; rank {} computes longest, {} a step",
                       Words(largest), Percent(StallShare(s, largest)),
                       busiest - s.stalls.busy.begin(), FormatTime(*busiest));
  }

  std::string Memory() const {
    std::string text;
    if (advised_ != nullptr) {
      text = fmt::format("{} on rank {}", FormatMemory(PeakBytes(*advised_->summary)),
                         advised_->summary->fullest_rank());
    }
    if (!HasLimit(comparison_)) {
      return text.empty() ? "no run, and no limit is given" : text + "; no limit is given";
    }
    const auto ran = std::count_if(comparison_.results.begin(), comparison_.results.end(), Ran);
    const auto fits = std::count_if(comparison_.results.begin(), comparison_.results.end(),
                                    [](const Result& r) { return Ran(r) && r.fits; });
    const std::string limit = LimitWords(comparison_);
    const Result* const least = Smallest();
    if (advised_ == nullptr && least != nullptr) {
      const int rank = TightestRank(*least->summary, comparison_);
      return fmt::format("{} needs {}: {}, {} over the limit of {}", least->schedule,
                         IsOnlyOne() ? "too much" : "least",
                         FormatMemory(least->summary->peak_bytes[static_cast<size_t>(rank)]),
                         FormatMemory(MissingBytes(*least->summary, comparison_)),
                         FormatMemory(LimitOf(comparison_, rank)));
    }
    text += (text.empty() ? "the limit is " : " of a limit of ") + limit;
    if (IsOnlyOne()) return text;
    return fmt::format("{}; {} of the {} schedules that run here fit", text, fits, ran);
  }

  std::string HowSure() const {
    const std::optional<Provenance>& from = comparison_.provenance;
    if (!from || !from->model || !from->profile) {
      return "as sure as the costs that were typed in; nothing was measured here";
    }
    const ProfileProvenance& profile = *from->profile;
    if (profile.typed_in()) return "as sure as the profile that was typed in; nothing was measured";
    if (profile.held_out_shapes == 0) {
      return "unknown: the profile has no kernels that its fits were tried on";
    }
    if (!profile.noisy) {
      return fmt::format("nine of ten unseen kernels predicted within {}",
                         Percent(profile.held_out_p90));
    }
    return fmt::format("kernels within {}, but noisy; again: spiritlevel calibrate -o {}",
                       Percent(profile.held_out_p90), profile.file);
  }

  const Comparison& comparison_;
  const Advice advice_;
  const Result* advised_;
};

}  // namespace

std::string FiveLines(const Comparison& comparison) { return Summariser(comparison).ToString(); }

}  // namespace spiritlevel
