#include "cli/search_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/certificate_json.h"
#include "report/figures.h"
#include "report/json.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

constexpr size_t kIndent = 8;  // "search: "

std::string Line(std::string_view text) {
  return std::string(kIndent, ' ') + Wrap(text, kIndent) + '\n';
}

std::string PlacementWords(const Placement& placement) {
  switch (placement.form) {
    case PlacementForm::kLinear:
      return "linear placement (one stage a rank)";
    case PlacementForm::kLooped:
      return fmt::format("looped placement ({} stages a rank)", placement.stages_per_rank);
    case PlacementForm::kV:
      break;
  }
  return "V placement (two stages a rank)";
}

std::string HowGood(const Certificate& c) {
  return c.proved_optimal ? "proved optimal"
                          : fmt::format("at most {} % above the best", GapNumber(c));
}

std::string Best(const SearchReport& report) {
  const Found& best = report.found.best;
  const Certificate& c = best.certificate;
  return fmt::format(
      "search: {}\n",
      Wrap(fmt::format("{} {}; no order of {} can be below {} ({}): {}", Name(report.objective),
                       FormatTime(c.value), PlacementWords(best.placement),
                       FormatTime(c.lower_bound), c.bound.reason, HowGood(c)),
           kIndent));
}

std::string Interruption(const Found& found) {
  if (!found.interrupted) return "";
  if (found.seconds_meant <= 0) return "; interrupted";
  return fmt::format("; interrupted after {:.1f} of {:.1f} s", found.answer.seconds,
                     found.seconds_meant);
}

// Placements that were looked at beside the best one, and those that were not.
std::string Others(const FoundInAll& found) {
  std::string text;
  for (const Found& other : found.all) {
    if (other.placement == found.best.placement) continue;
    text +=
        Line(fmt::format("{}: {}, {}{}", NameOf(other.placement), FormatTime(other.answer.value),
                         HowGood(other.certificate), Interruption(other)));
  }
  for (const Placement& placement : found.not_searched) {
    text += Line(NameOf(placement) + ": not searched");
  }
  return text;
}

TimeNs ValueOf(const Summary& summary, Objective objective) {
  switch (objective) {
    case Objective::kSpan:
      return summary.max_rank_span;
    case Objective::kMakespan:
      return summary.makespan;
    case Objective::kStep:
      break;
  }
  return summary.period;
}

// A named schedule that fits and is faster can only be of what was not searched.
std::string FasterElsewhere(const SearchReport& report) {
  const std::vector<Result>& results = report.comparison.results;
  const Result* fastest = &results.front();
  for (const Result& r : results) {
    if (!Ran(r) || !r.fits) continue;
    const bool faster =
        ValueOf(*r.summary, report.objective) < ValueOf(*fastest->summary, report.objective);
    if (faster) fastest = &r;
  }
  if (fastest == &results.front()) return "";
  const std::string time = FormatTime(ValueOf(*fastest->summary, report.objective));
  // Where there is no bound the schedule is of a kind that no search finds.
  if (!fastest->certificate) {
    return Line(fmt::format("{} is faster, {}, in a way that is not searched: {}",
                            fastest->schedule, time, fastest->certificate_note));
  }
  return Line(fmt::format("{} is faster with another placement, {}: try --placement best",
                          fastest->schedule, time));
}

std::string LeftOut(const SearchReport& report) {
  if (report.left_out.empty()) return "";
  return Line(fmt::format("not played, and not in the table: {}; `spiritlevel compare` does",
                          fmt::join(report.left_out, ", ")));
}

int64_t TotalEvaluations(const FoundInAll& found) {
  int64_t sum = 0;
  for (const Found& f : found.all) sum += f.answer.evaluations;
  return sum;
}

double TotalSeconds(const FoundInAll& found) {
  double sum = 0;
  for (const Found& f : found.all) sum += f.answer.seconds;
  return sum;
}

nlohmann::ordered_json PlacementsOf(const FoundInAll& found) {
  auto list = nlohmann::ordered_json::array();
  for (const Found& f : found.all) {
    nlohmann::ordered_json one;
    one["placement"] = Name(f.placement.form);
    one["stages_per_rank"] = f.placement.stages_per_rank;
    one["value_ns"] = f.answer.value;
    AddCertificate(f.certificate, &one);
    one["interrupted"] = f.interrupted;
    list.push_back(std::move(one));
  }
  for (const Placement& placement : found.not_searched) {
    nlohmann::ordered_json one;
    one["placement"] = Name(placement.form);
    one["stages_per_rank"] = placement.stages_per_rank;
    one["value_ns"] = nullptr;
    AddCertificate(std::nullopt, &one);
    one["interrupted"] = true;
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

std::string SearchVerdict(const SearchReport& report) {
  const FoundInAll& found = report.found;
  std::string text = "\n";
  text += Best(report) + Others(found);
  text +=
      Line(fmt::format("{} evaluations in {:.1f} s", TotalEvaluations(found), TotalSeconds(found)));
  if (found.interrupted()) {
    text += Line(fmt::format("interrupted: this is the best so far{}", Interruption(found.best)));
  }
  return text + LeftOut(report) + FasterElsewhere(report);
}

std::string MicroBatchesOf(const NumberedSchedule& exported) {
  if (exported.is_as_it_was()) return "";
  constexpr size_t kListed = 32;
  std::vector<int> first = exported.order;
  first.resize(std::min(first.size(), kListed));
  return "micro-batches: " +
         Wrap(fmt::format("PyTorch takes losses in the order of the last stage, so the file's "
                          "micro-batches 0, 1, 2, ... are the scenario's {}{}: arrange the batch "
                          "like that (micro_batch_order in the JSON)",
                          fmt::join(first, ", "), exported.order.size() > kListed ? ", ..." : ""),
              4) +
         '\n';
}

std::string SearchJson(const SearchReport& report) {
  auto all = nlohmann::ordered_json::parse(ToJson(report.comparison));
  const FoundInAll& found = report.found;
  const Certificate& c = found.best.certificate;
  all["objective"] = Name(report.objective);
  all["value_ns"] = c.value;
  AddCertificate(c, &all);
  all["placement"] = Name(found.best.placement.form);
  all["stages_per_rank"] = found.best.placement.stages_per_rank;
  all["placements"] = PlacementsOf(found);
  all["interrupted"] = found.interrupted();
  all["left_out"] = report.left_out;
  all["micro_batch_order"] = nullptr;
  if (report.exported && !report.exported->is_as_it_was()) {
    all["micro_batch_order"] = report.exported->order;
  }
  all["seconds"] = TotalSeconds(found);
  all["evaluations"] = TotalEvaluations(found);
  all["seed"] = report.seed;
  return all.dump(2) + "\n";
}

}  // namespace spiritlevel
