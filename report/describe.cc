#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "report/figures.h"
#include "report/grid.h"
#include "report/schedules_list.h"
#include "report/table.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

constexpr size_t kIndent = 26;
constexpr size_t kRanksListed = 16;

void AddLine(std::string_view what, std::string_view text, std::string& out) {
  const std::string_view gap = what.size() < kIndent ? "" : " ";  // a long probability
  out += PadRight(what, kIndent) + std::string(gap) + Wrap(text, kIndent) + '\n';
}

std::string PlacementWords(const Result& r) {
  if (r.placement.empty()) return "";
  return fmt::format(" ({} placement, {} stage{} a rank)", r.placement, r.stages_per_rank,
                     r.stages_per_rank == 1 ? "" : "s");
}

std::string Verdict(const Result& r, const Comparison& comparison) {
  if (!r.valid) return "no: the schedule is illegal, see below";
  if (!HasLimit(comparison)) return "no memory limit is given";
  const Bytes missing = MissingBytes(*r.summary, comparison);
  const int rank = TightestRank(*r.summary, comparison);
  const std::string on = comparison.memory_limit ? "" : fmt::format(" on rank {}", rank);
  return r.fits ? fmt::format("yes, with {} to spare{}", FormatMemory(-missing), on)
                : fmt::format("no: {} over the limit of {}{}", FormatMemory(missing),
                              FormatMemory(LimitOf(comparison, rank)), on);
}

// "69 us (formula 68 us, simulated 1 us more)"
std::string Beside(TimeNs simulated, std::optional<TimeNs> formula) {
  const std::string mine = FormatTime(simulated);
  if (!formula) return mine;
  const TimeNs difference = simulated - *formula;
  if (difference == 0) return mine + " (formula: the same)";
  return fmt::format("{} (formula: {}, simulated {} {})", mine, FormatTime(*formula),
                     FormatTime(std::abs(difference)), difference > 0 ? "more" : "less");
}

// What the tail adds after the last op of all; the formulas know no tail. On every rank that time
// is `optimizer`, and on the rank that is last nothing else is.
TimeNs TailOf(const Summary& s) {
  TimeNs tail = s.makespan;
  for (const StallsByCategory& rank : s.stalls.stalls) {
    tail = std::min(tail, rank[static_cast<size_t>(StallCategory::kOptimizer)]);
  }
  return tail;
}

// What any order of the placement could reach at best.
std::string CertificateWords(const Result& r) {
  if (!r.certificate) return "lower bound: none, " + r.certificate_note;
  const Certificate& c = *r.certificate;
  if (c.proved_optimal) {
    return fmt::format("proved optimal for this placement and limit: {}", c.bound.reason);
  }
  return fmt::format("lower bound {} ({}): at most {} % above the best", FormatTime(c.lower_bound),
                     c.bound.reason, GapNumber(c));
}

void AddTimes(const Result& r, const Comparison& comparison, std::string& out) {
  const Summary& s = *r.summary;
  std::string step = FormatTime(s.step);
  const std::optional<double> factor = SpeedUp(r, comparison);
  if (factor && r.schedule != "1f1b") step += fmt::format(", {} as fast as 1f1b", Times(*factor));
  AddLine(r.rejection ? fmt::format("expected step at q = {}", r.rejection->probability) : "step",
          step, out);
  std::optional<TimeNs> makespan = r.closed_form.makespan;
  if (makespan) *makespan += TailOf(s);
  AddLine("makespan", Beside(s.makespan, makespan), out);
  AddLine("longest rank span", Beside(s.max_rank_span, r.closed_form.max_rank_span), out);
  if (r.certificate || !r.certificate_note.empty()) AddLine("", CertificateWords(r), out);
  if (r.rejection) {
    AddLine("period, none rejected", FormatTime(s.period), out);
    AddLine("period, one rejected", FormatTime(r.rejection->period), out);
  } else {
    AddLine("period", FormatTime(s.period), out);
  }
  AddLine("bubble rate", Percent(s.bubble_rate) + " of the longest rank span", out);
  AddLine("bubble fraction", Percent(s.bubble_fraction) + " of ranks x makespan", out);
}

void AddMemory(const Result& r, const Comparison& comparison, std::string& out) {
  const Summary& s = *r.summary;
  const auto rank = static_cast<size_t>(s.fullest_rank());
  AddLine("peak memory",
          fmt::format("{} on rank {}, {} of it activations", FormatMemory(s.peak_bytes[rank]), rank,
                      FormatMemory(s.peak_activation_bytes[rank])),
          out);
  AddLine("fits", Verdict(r, comparison), out);
  AddLine(
      "stage activations",
      fmt::format("at most {} on a rank wait for B, {} for W", s.peak_waiting_b, s.peak_waiting_w),
      out);
  if (r.closed_form.peak_stage_activations) {
    AddLine("",
            fmt::format("formula: at most {} held from F to W or BW",
                        *r.closed_form.peak_stage_activations),
            out);
  }
  AddLine("parameter copies", std::to_string(s.parameter_copies), out);
}

// A column of the table of ranks, before it is known how many ranks are shown.
struct RankColumn {
  std::string group;
  Scale scale;
  std::string name;
  std::vector<int64_t> values;
};

RankColumn TimesOfRanks(std::string group, std::string name, std::vector<TimeNs> values,
                        const Scale& scale) {
  return {std::move(group), scale, std::move(name), std::move(values)};
}

RankColumn BytesOfRanks(std::string group, std::vector<Bytes> values) {
  const Scale scale = Scale::ForMemory(*std::max_element(values.begin(), values.end()));
  return {std::move(group), scale, scale.unit(), std::move(values)};
}

std::vector<RankColumn> ColumnsOf(const Summary& s) {
  // One unit for all times, so that a row can be added up.
  const Scale scale = Scale::ForTimes(s.makespan);
  std::vector<RankColumn> columns;
  columns.push_back(TimesOfRanks("busy", scale.unit(), s.stalls.busy, scale));
  for (int i = 0; i < kNumStallCategories; ++i) {
    const auto category = static_cast<StallCategory>(i);
    if (SumOfStalls(s, category) == 0) continue;
    std::vector<TimeNs> values;
    for (const StallsByCategory& rank : s.stalls.stalls) {
      values.push_back(rank[static_cast<size_t>(category)]);
    }
    columns.push_back(TimesOfRanks(fmt::format("stalls, {}", scale.unit()),
                                   std::string(Name(category)), std::move(values), scale));
  }
  columns.push_back(BytesOfRanks("peak", s.peak_bytes));
  columns.push_back(BytesOfRanks("activations", s.peak_activation_bytes));
  return columns;
}

// Each rank, or of many the first, the last, and the spread of each column by itself.
std::vector<int64_t> Shown(const std::vector<int64_t>& values) {
  if (values.size() <= kRanksListed) return values;
  std::vector<int64_t> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  return {values.front(), values.back(), sorted.front(), sorted[(sorted.size() - 1) / 2],
          sorted.back()};
}

std::string RankTable(const Summary& s) {
  const size_t ranks = s.stalls.busy.size();
  Grid::Column names{.name = "rank", .left = true};
  if (ranks <= kRanksListed) {
    for (size_t r = 0; r < ranks; ++r) names.cells.push_back(std::to_string(r));
  } else {
    names.cells = {"first", "last", "min", "median", "max"};
  }
  Grid grid;
  grid.Add(std::move(names));
  for (RankColumn& column : ColumnsOf(s)) {
    Grid::Column cells{.group = std::move(column.group), .name = std::move(column.name)};
    for (const int64_t value : Shown(column.values)) {
      cells.cells.push_back(column.scale.Number(value));
    }
    grid.Add(std::move(cells));
  }
  return grid.ToString();
}

}  // namespace

std::string DescribeResult(const Result& r, const Comparison& comparison) {
  std::string out =
      Wrap(fmt::format("{}{} on {}: {} ranks, {} micro-batches{}{}", r.schedule, PlacementWords(r),
                       comparison.scenario, comparison.ranks, comparison.micro_batches,
                       comparison.posting.empty() ? "" : ", ", Choices(comparison)),
           0) +
      "\n";
  if (comparison.provenance) {
    for (const std::string& text :
         {SourceOf(*comparison.provenance), PlayedAs(*comparison.provenance)}) {
      if (!text.empty()) out += Wrap(text, 0) + "\n";
    }
  }
  out += "\n";
  if (!r.summary) return out + "cannot run: " + Wrap(OneParagraph(r.reason), 12) + '\n';
  const Summary& s = *r.summary;
  AddTimes(r, comparison, out);
  AddMemory(r, comparison, out);
  AddLine("sent between ranks",
          s.pp_bytes > 0 ? fmt::format("{} in {} messages", FormatMemory(s.pp_bytes), s.messages)
                         : fmt::format("{} messages, their size is not given", s.messages),
          out);
  if (!r.reason.empty()) AddLine(r.valid ? "note" : "illegal", OneParagraph(r.reason), out);
  out += '\n' + RankTable(s);
  out += "\nof the first iteration; on each rank busy and stalls add up to the makespan";
  if (SumOfStalls(s, StallCategory::kOptimizer) > 0) {
    out += ";\noptimizer is all of the tail: step, barrier, sums of gradients";
  }
  out += '\n';
  return out;
}

}  // namespace spiritlevel
