#include "report/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "report/advice.h"
#include "report/figures.h"
#include "report/grid.h"
#include "report/text.h"
#include "sim/program.h"

namespace spiritlevel {
namespace {

class Table {
 public:
  explicit Table(const Comparison& comparison)
      : comparison_(comparison), advice_(FindAdvice(comparison)) {
    for (const Result& r : comparison.results) any_ran_ |= r.summary.has_value();
    for (int i = 0; i < kNumStallCategories; ++i) {
      const auto category = static_cast<StallCategory>(i);
      (OccursAnywhere(category) ? shown_ : left_out_).push_back(category);
    }
  }

  std::string ToString() {
    std::string out =
        Wrap(Title(), 0) + "\n" + Source() + "\n" + Wrap(Headline(comparison_), 0) + "\n\n";
    AddNames();
    if (any_ran_) AddNumbers();
    for (size_t i = 0; i < comparison_.results.size(); ++i) {
      const Result& r = comparison_.results[i];
      if (!r.summary) grid_.ReplaceRow(i, "cannot run: " + ReasonOrMark(r));
    }
    out += grid_.ToString();
    for (size_t i = 0; i < notes_.size(); ++i) {
      const std::string mark = fmt::format("[{}] ", i + 1);
      out += (i == 0 ? "\n" : "") + mark + Wrap(notes_[i], mark.size()) + '\n';
    }
    if (any_ran_) out += '\n' + Legend();
    for (const std::string& warning : comparison_.warnings) {
      out += "\nwarning: " + Wrap(warning, 9) + '\n';
    }
    return out + "\nadvice: " + Wrap(advice_.text, 8) + '\n';
  }

 private:
  // A column of one text for each result that ran, empty for the others.
  template <class TextOf>
  void Add(std::string group, std::string name, TextOf text_of) {
    Grid::Column column{.group = std::move(group), .name = std::move(name)};
    for (const Result& r : comparison_.results) {
      column.cells.push_back(r.summary ? text_of(r, *r.summary) : "");
    }
    grid_.Add(std::move(column));
  }

  template <class ValueOf>
  int64_t Largest(ValueOf value_of) const {
    int64_t largest = 0;
    for (const Result& r : comparison_.results) {
      if (r.summary) largest = std::max<int64_t>(largest, value_of(*r.summary));
    }
    return largest;
  }

  bool OccursAnywhere(StallCategory category) const {
    return Largest([=](const Summary& s) { return SumOfStalls(s, category); }) > 0;
  }
  bool sends_bytes() const {
    return Largest([](const Summary& s) { return s.pp_bytes; }) > 0;
  }

  std::string Title() const {
    std::string title =
        fmt::format("{}: {} rank{}, {} micro-batch{}", comparison_.scenario, comparison_.ranks,
                    comparison_.ranks == 1 ? "" : "s", comparison_.micro_batches,
                    comparison_.micro_batches == 1 ? "" : "es");
    const std::string choices = Choices(comparison_);
    if (!choices.empty()) title += ", " + choices;
    if (HasLimit(comparison_)) title += ", memory limit " + LimitWords(comparison_);
    return title;
  }

  std::string Source() const {
    if (!comparison_.provenance) return "";
    std::string lines;
    for (const std::string& text :
         {SourceOf(*comparison_.provenance), PlayedAs(*comparison_.provenance)}) {
      if (!text.empty()) lines += Wrap(text, 0) + "\n";
    }
    return lines;
  }

  void AddNames() {
    Grid::Column names{.name = "  schedule", .left = true};
    for (const Result& r : comparison_.results) {
      const bool advised = r.summary && !advice_.schedule.empty() && r.schedule == advice_.schedule;
      names.cells.push_back((advised ? "* " : "  ") + r.schedule);
    }
    grid_.Add(std::move(names));
  }

  void AddNumbers() {
    AddTimes();
    AddMemory();
    AddTraffic();
    Add("", "fits", [](const Result& r, const Summary&) -> std::string {
      if (!r.valid) return "illegal";
      return r.fits ? "yes" : "no";
    });
    AddNotes();
  }

  void AddTimes() {
    const Scale steps = Scale::ForTimes(Largest([](const Summary& s) { return s.step; }));
    Add("step", steps.unit(),
        [&](const Result&, const Summary& s) { return steps.Number(s.step); });
    Add("speed", "-up", [&](const Result& r, const Summary&) {
      const std::optional<double> factor = SpeedUp(r, comparison_);
      return factor ? Times(*factor) : "-";
    });
    Add("bubble, %", "rate",
        [](const Result&, const Summary& s) { return PercentNumber(s.bubble_rate); });
    Add("bubble, %", "frac",
        [](const Result&, const Summary& s) { return PercentNumber(s.bubble_fraction); });
    Add("gap", "%", [](const Result& r, const Summary&) -> std::string {
      if (!r.certificate) return "-";
      return r.certificate->proved_optimal ? "opt" : GapNumber(*r.certificate);
    });
    for (const StallCategory category : shown_) {
      Add("stalls, %", std::string(ShortName(category)),
          [=](const Result&, const Summary& s) { return PercentNumber(StallShare(s, category)); });
    }
  }

  void AddMemory() {
    const Scale peaks = Scale::ForMemory(Largest(PeakBytes));
    Add("peak memory", peaks.unit(),
        [&](const Result&, const Summary& s) { return peaks.Number(PeakBytes(s)); });
    Add("peak memory", "rank",
        [](const Result&, const Summary& s) { return std::to_string(s.fullest_rank()); });
    Add("waiting", "B",
        [](const Result&, const Summary& s) { return std::to_string(s.peak_waiting_b); });
    Add("waiting", "W",
        [](const Result&, const Summary& s) { return std::to_string(s.peak_waiting_w); });
  }

  void AddTraffic() {
    const Scale sent = Scale::ForMemory(Largest([](const Summary& s) { return s.pp_bytes; }));
    Add("sent", sends_bytes() ? sent.unit() : "msgs", [&](const Result&, const Summary& s) {
      return sends_bytes() ? sent.Number(s.pp_bytes) : std::to_string(s.messages);
    });
    Add("par", "x",
        [](const Result&, const Summary& s) { return std::to_string(s.parameter_copies); });
  }

  // What is to be known about rows that ran.
  void AddNotes() {
    Grid::Column column{.left = true};
    for (const Result& r : comparison_.results) {
      column.cells.push_back(r.summary && !r.reason.empty() ? Mark(r.reason) : "");
    }
    if (!notes_.empty()) grid_.Add(std::move(column));
  }

  // "[1]": each text stands once below the table.
  std::string Mark(const std::string& reason) {
    const std::string text = OneParagraph(reason);
    const auto known = std::find(notes_.begin(), notes_.end(), text);
    const auto number = known - notes_.begin() + 1;
    if (known == notes_.end()) notes_.push_back(text);
    return fmt::format("[{}]", number);
  }

  // Of a row that cannot run; a long one that several rows share is a footnote.
  std::string ReasonOrMark(const Result& result) {
    constexpr size_t kLong = 60;
    const auto same =
        std::count_if(comparison_.results.begin(), comparison_.results.end(),
                      [&](const Result& r) { return !r.summary && r.reason == result.reason; });
    if (same < 2 || result.reason.size() < kLong) return OneParagraph(result.reason);
    return Mark(result.reason);
  }

  std::string Legend() const {
    std::string legend;
    const auto add = [&](std::string_view what, const std::string& meaning) {
      legend += PadRight(what, 10) + Wrap(meaning, 10) + '\n';
    };
    const std::string step = "from one first F to the next, in the steady state";
    add("step", comparison_.rejection > 0
                    ? fmt::format("expected step at q = {}: {}, one version in {:.4g} rejected and "
                                  "replayed; speed-up over 1f1b is by it",
                                  comparison_.rejection, step, 1 / comparison_.rejection)
                    : step + "; speed-up over 1f1b is by step");
    add("bubble",
        "rate: (longest rank span - largest busy time) / longest rank span;\n"
        "frac: idle share of ranks x makespan, which the stalls add up to");
    add("gap", GapLegend());
    add("stalls", StallLegend());
    add("peak", "memory of the fullest rank, and which rank that is");
    add("waiting",
        "most stage activations on a rank that wait for B and for W; where a rank holds v stages, "
        "each is 1/v as large");
    add("sent", fmt::format("{} between ranks in one iteration; par: copies of the parameters",
                            sends_bytes() ? "data" : "messages"));
    if (!HasLimit(comparison_)) add("fits", "no memory limit is given");
    if (!advice_.schedule.empty()) add("*", "advised");
    return legend;
  }

  std::string GapLegend() const {
    std::string legend = fmt::format(
        "how far the longest rank span lies above a bound that no order of its placement can be "
        "below{}; opt: not at all, which proves it optimal",
        HasLimit(comparison_) ? " within the limit" : "");
    std::vector<std::string> why;
    for (const Result& r : comparison_.results) {
      if (!r.summary || r.certificate || r.certificate_note.empty()) continue;
      const auto known = std::find(why.begin(), why.end(), r.certificate_note);
      if (known == why.end()) why.push_back(r.certificate_note);
    }
    if (why.empty()) return legend;
    return legend + fmt::format("; -: no bound, since {}", fmt::join(why, "; or "));
  }

  std::string StallLegend() const {
    std::vector<std::string> names;
    for (const StallCategory c : shown_) {
      names.push_back(fmt::format("{} {}", ShortName(c), Words(c)));
    }
    std::string legend = fmt::format("{}", fmt::join(names, ", "));
    if (left_out_.empty()) return legend;
    std::vector<std::string_view> absent;
    for (const StallCategory c : left_out_) absent.push_back(Name(c));
    if (!legend.empty()) legend += "; ";
    return legend + fmt::format("nowhere any: {}", fmt::join(absent, ", "));
  }

  const Comparison& comparison_;
  const Advice advice_;
  bool any_ran_ = false;
  std::vector<StallCategory> shown_;
  std::vector<StallCategory> left_out_;
  std::vector<std::string> notes_;
  Grid grid_;
};

}  // namespace

std::string_view ShortName(StallCategory category) {
  switch (category) {
    case StallCategory::kDependency:
      return "dep";
    case StallCategory::kImbalance:
      return "imb";
    case StallCategory::kTransfer:
      return "xfer";
    case StallCategory::kMemory:
      return "mem";
    case StallCategory::kCollective:
      return "coll";
    case StallCategory::kOptimizer:
      return "opt";
    case StallCategory::kLaunch:
      return "lnch";
  }
  return "";
}

std::string Headline(const Comparison& comparison) {
  const TimeNs optimizer = comparison.optimizer_per_rank;
  const std::string passes = FormatTime(comparison.work_per_rank - optimizer);
  const std::string work = optimizer == 0 ? fmt::format("own work is {}", passes)
                                          : fmt::format("own work is {}, its optimizer step {}",
                                                        passes, FormatTime(optimizer));
  const std::string_view mean =
      comparison.slowest_stage_work > comparison.work_per_rank ? "the mean rank" : "each rank";
  const Result* base = Baseline(comparison);
  const std::optional<double> most = LargestSpeedUp(comparison);
  if (base == nullptr || !most) {
    return fmt::format("{}; {}'s {}:\nno schedule's step can be shorter.",
                       base == nullptr ? "1f1b cannot run here" : "1f1b takes no time", mean, work);
  }
  return fmt::format(
      "1f1b takes {} a step; {}'s {}:\n"
      "{}no schedule can be more than {} as fast.",
      FormatTime(base->summary->step), mean, work,
      mean == "each rank" ? "" : "even with perfectly balanced ranks ", Times(*most));
}

std::string Choices(const Comparison& comparison) {
  std::vector<std::string> choices;
  const auto add = [&choices](std::string_view what, const std::string& chosen,
                              std::string_view usual) {
    if (!chosen.empty() && chosen != usual) choices.push_back(fmt::format("{} {}", what, chosen));
  };
  add("posting", comparison.posting, "");
  add("receives", comparison.receives, Name(Receives::kEarly));
  add("channels", comparison.channels, Name(Channels::kPair));
  add("tail", comparison.tail, "");
  add("weight grads", comparison.weight_grads, Name(WeightGrads::kByMicroBatch));
  if (comparison.rejection > 0)
    choices.push_back(fmt::format("rejection {}", comparison.rejection));
  return fmt::format("{}", fmt::join(choices, ", "));
}

std::string CompareTable(const Comparison& comparison) { return Table(comparison).ToString(); }

}  // namespace spiritlevel
