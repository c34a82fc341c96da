#include "report/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace spiritlevel {
namespace {

constexpr std::array<std::string_view, kNumGateMetrics> kMetricNames = {
    "makespan_ns",    "step_ns", "bubble_rate", "peak_bytes", "exposed_communication_ns",
    "certificate_gap"};

// The last of a rate's billionths may fall to either side.
constexpr int64_t kRateSlack = 1;

const GateScenario* Find(const GateRecord& record, const std::string& name) {
  for (const GateScenario& s : record.scenarios) {
    if (s.name == name) return &s;
  }
  return nullptr;
}

const GateEntry* Find(const GateScenario& scenario, const std::string& schedule) {
  for (const GateEntry& e : scenario.entries) {
    if (e.schedule == schedule) return &e;
  }
  return nullptr;
}

std::string Because(const std::string& reason) { return reason.empty() ? "" : ": " + reason; }

// What is said of a run beside its numbers, against before.
void JudgeStanding(const GateEntry& before, const GateEntry& now, GateRow* row) {
  const auto say = [&](GateState state, std::string note) {
    row->state = state;
    row->note = std::move(note);
  };
  if (before.valid && !now.valid) {
    say(GateState::kWorse, "does not run any more" + Because(now.reason));
  } else if (!before.valid && now.valid) {
    say(GateState::kBetter, "runs now");
  } else if (before.fits && !now.fits) {
    say(GateState::kWorse, "does not fit any more" + Because(now.reason));
  } else if (!before.fits && now.fits) {
    say(GateState::kBetter, "fits now");
  }
}

GateState Compare(GateMetric metric, const GateRules& rules, const std::optional<int64_t>& before,
                  const std::optional<int64_t>& after) {
  if (before == after) return GateState::kSame;
  if (!before) return GateState::kNew;
  if (!after) return GateState::kWorse;  // what was known is not known any more
  if (IsRate(metric) && std::abs(*after - *before) <= kRateSlack) return GateState::kSame;
  if (*after < *before) return GateState::kBetter;
  return rules.Allows(metric, *before, *after) ? GateState::kTolerated : GateState::kWorse;
}

bool IsWorse(const GateChange& a, const GateChange& b) {
  if (a.state != b.state) return a.state > b.state;
  // What grew from nothing has no share, and is the worst there is.
  constexpr double kMost = 1e300;
  return a.growth().value_or(kMost) > b.growth().value_or(kMost);
}

GateRow JudgeEntry(const GateEntry& before, const GateEntry& now, const GateRules& rules) {
  GateRow row{.scenario = {}, .schedule = now.schedule};
  JudgeStanding(before, now, &row);
  // The numbers of what did not run once are no measure.
  if (!before.valid || !now.valid) return row;
  for (int i = 0; i < kNumGateMetrics; ++i) {
    const auto metric = static_cast<GateMetric>(i);
    if (!rules.watches(metric)) continue;
    const GateChange change{
        .metric = metric,
        .state = Compare(metric, rules, before.figure(metric), now.figure(metric)),
        .before = before.figure(metric),
        .after = now.figure(metric)};
    if (change.state == GateState::kSame) continue;
    row.state = std::max(row.state, change.state);
    row.changes.push_back(change);
  }
  std::stable_sort(row.changes.begin(), row.changes.end(), IsWorse);
  return row;
}

// Other times by another machine's profile say nothing of a change.
void RequireSameProfile(const GateScenario& before, const GateScenario& now,
                        std::string_view name) {
  if (before.profile == now.profile) return;
  const auto words = [](const std::string& digest) {
    return digest.empty() ? std::string("none") : digest;
  };
  throw InputError(
      fmt::format("{}: \"{}\" was made with another profile (digest {} there, {} now)", name,
                  now.name, words(before.profile), words(now.profile)),
      "play it with that one: --profile FILE, or the scenario's; or write the baseline anew with "
      "`gate ... --update`");
}

void AddMissing(const GateScenario& before, const GateScenario* now, GateVerdict* verdict) {
  for (const GateEntry& entry : before.entries) {
    if (now != nullptr && Find(*now, entry.schedule) != nullptr) continue;
    verdict->rows.push_back({.scenario = before.name,
                             .schedule = entry.schedule,
                             .state = GateState::kWorse,
                             .note = "stands in the baseline and was not played"});
  }
}

}  // namespace

std::string_view Name(GateMetric metric) { return kMetricNames[static_cast<size_t>(metric)]; }

std::string_view Name(GateState state) {
  constexpr std::array<std::string_view, 5> kNames = {"same", "new", "better", "tolerated",
                                                      "worse"};
  return kNames[static_cast<size_t>(state)];
}

bool IsRate(GateMetric metric) {
  return metric == GateMetric::kBubbleRate || metric == GateMetric::kCertificateGap;
}

int64_t GateRate(double share) { return std::llround(share * static_cast<double>(kGateRateUnit)); }

void GateRules::Watch(std::string_view metric) {
  const auto at = std::find(kMetricNames.begin(), kMetricNames.end(), metric);
  if (at == kMetricNames.end()) {
    throw InputError(fmt::format("--metric: there is no \"{}\"", metric),
                     fmt::format("the metrics are {}", fmt::join(kMetricNames, ", ")));
  }
  bool& named = named_[static_cast<size_t>(at - kMetricNames.begin())];
  if (named) throw InputError(fmt::format("--metric: {} is given twice", metric), "give it once");
  named = true;
}

void GateRules::Tolerate(std::string_view text) {
  const size_t equals = std::min(text.find('='), text.size());
  const auto at = std::find(kMetricNames.begin(), kMetricNames.end(), text.substr(0, equals));
  if (at == kMetricNames.end() || equals == text.size()) {
    throw InputError(fmt::format("--tolerance: \"{}\" is not METRIC=PERCENT", text),
                     fmt::format("the metrics are {}", fmt::join(kMetricNames, ", ")));
  }
  std::optional<double>& allowed = percent_[static_cast<size_t>(at - kMetricNames.begin())];
  if (allowed) {
    throw InputError(fmt::format("--tolerance: {} is given twice", *at),
                     "give the one that is meant");
  }
  std::string_view number = text.substr(equals + 1);
  if (number.ends_with('%')) number.remove_suffix(1);
  double percent = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (error != std::errc() || end != number.data() + number.size() ||
      !(percent >= 0 && percent <= 1000)) {
    throw InputError(fmt::format("--tolerance: {}: \"{}\" is no percentage from 0 to 1000", *at,
                                 text.substr(equals + 1)),
                     fmt::format("for example {}=0.5", *at));
  }
  allowed = percent;
}

void GateRules::RefuseIdle() const {
  for (size_t i = 0; i < percent_.size(); ++i) {
    if (!percent_[i] || watches(static_cast<GateMetric>(i))) continue;
    throw InputError(fmt::format("--tolerance: {} is not watched", kMetricNames[i]),
                     fmt::format("add --metric {}, or leave its tolerance out", kMetricNames[i]));
  }
}

bool GateRules::watches_all() const {
  return std::none_of(named_.begin(), named_.end(), [](bool named) { return named; });
}

bool GateRules::watches(GateMetric metric) const { return watches_all() || named_[At(metric)]; }

bool GateRules::Allows(GateMetric metric, int64_t before, int64_t after) const {
  const double whole = static_cast<double>(IsRate(metric) ? kGateRateUnit : before);
  const auto slack = static_cast<double>(IsRate(metric) ? kRateSlack : 0);
  // The difference is exact; only what it is held against is rounded.
  return static_cast<double>(after - before) <= whole * percent(metric) / 100 + slack;
}

std::optional<double> GateChange::growth() const {
  if (!before || !after) return {};
  const auto more = static_cast<double>(*after - *before);
  if (IsRate(metric)) return more / static_cast<double>(kGateRateUnit);
  if (*before == 0) return {};
  return more / static_cast<double>(*before);
}

int GateVerdict::Count(GateState state) const {
  return static_cast<int>(std::count_if(rows.begin(), rows.end(),
                                        [&](const GateRow& row) { return row.state == state; }));
}

void RequireComparable(const GateRecord& baseline, const GateRecord& now,
                       const std::vector<std::string>& asked_for, std::string_view name) {
  const std::string way_out = "`gate ... --update` writes it anew, with what is played now";
  for (const auto& [flag, word] : now.settings) {
    const auto at = baseline.settings.find(flag);
    const std::string theirs = at == baseline.settings.end() ? "?" : at->second;
    if (theirs == word) continue;
    throw InputError(fmt::format("{}: was made with {} {}, not {}", name, flag, theirs, word),
                     way_out);
  }
  for (const auto& [flag, word] : baseline.settings) {
    if (now.settings.contains(flag)) continue;
    throw InputError(
        fmt::format("{}: was made with {} {}, which this program does not know", name, flag, word),
        way_out);
  }
  for (const GateScenario& scenario : now.scenarios) {
    const GateScenario* before = Find(baseline, scenario.name);
    if (before == nullptr) {
      throw InputError(fmt::format("{}: has no scenario \"{}\"", name, scenario.name), way_out);
    }
    if (before->ranks != scenario.ranks || before->micro_batches != scenario.micro_batches) {
      throw InputError(
          fmt::format("{}: \"{}\" has {} ranks and {} micro-batches there, and {} and {} now", name,
                      scenario.name, before->ranks, before->micro_batches, scenario.ranks,
                      scenario.micro_batches),
          way_out);
    }
    RequireSameProfile(*before, scenario, name);
    for (const std::string& schedule : asked_for) {
      if (Find(*before, schedule) != nullptr) continue;
      throw InputError(fmt::format("{}: \"{}\" has no schedule {}", name, scenario.name, schedule),
                       way_out);
    }
  }
}

GateVerdict JudgeGate(const GateRecord& baseline, const GateRecord& now, const GateRules& rules) {
  GateVerdict verdict;
  for (int i = 0; i < kNumGateMetrics && !rules.watches_all(); ++i) {
    const auto metric = static_cast<GateMetric>(i);
    if (rules.watches(metric)) verdict.watched.push_back(metric);
  }
  for (const GateScenario& scenario : now.scenarios) {
    const GateScenario* before = Find(baseline, scenario.name);
    for (const GateEntry& entry : scenario.entries) {
      const GateEntry* old = before == nullptr ? nullptr : Find(*before, entry.schedule);
      GateRow row{.scenario = {},
                  .schedule = entry.schedule,
                  .state = GateState::kNew,
                  .note = "is not in the baseline"};
      if (old != nullptr) row = JudgeEntry(*old, entry, rules);
      row.scenario = scenario.name;
      verdict.rows.push_back(std::move(row));
    }
    if (before != nullptr) AddMissing(*before, &scenario, &verdict);
  }
  for (const GateScenario& before : baseline.scenarios) {
    if (Find(now, before.name) == nullptr) AddMissing(before, nullptr, &verdict);
  }
  return verdict;
}

}  // namespace spiritlevel
