#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/grid.h"
#include "report/text.h"
#include "report/verification.h"

namespace spiritlevel {
namespace {

std::string Signed(double share) { return fmt::format("{:+.1f}", 100 * share); }

std::string TokensPerSecond(int64_t tokens, TimeNs step) {
  if (tokens == 0 || step == 0) return "";
  return fmt::format("{:.0f}", static_cast<double>(tokens) * 1e9 / static_cast<double>(step));
}

// What is wrong shall not be overlooked.
std::string Loud(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string Verdict(const VerifiedSchedule& schedule, const Verification& all) {
  std::vector<std::string> words;
  for (const std::string& wrong : WrongsOf(schedule, all)) words.push_back(Loud(wrong));
  words.emplace_back(Name(JudgeBar(schedule, all)));
  if (schedule.gradients_equal == true) words.emplace_back("gradients =");
  return fmt::format("{}", fmt::join(words, ", "));
}

// Instead of a row: why there are no numbers.
std::string WhyNoNumbers(const VerifiedSchedule& schedule) {
  if (schedule.failures.empty()) return schedule.reason;
  return "FAILED: " + schedule.failures.front();
}

// The table's rows are the schedules; a column's cells come from a function of one.
class Table {
 public:
  explicit Table(const Verification& verification) : all_(verification) {}

  template <class CellOf>
  void Add(std::string group, std::string name, const CellOf& cell, bool left = false) {
    Grid::Column column{.group = std::move(group), .name = std::move(name), .left = left};
    for (const VerifiedSchedule& schedule : all_.schedules) {
      const bool shown = schedule.ran() || grid_is_empty_;
      column.cells.push_back(shown ? cell(schedule) : "");
    }
    grid_is_empty_ = false;
    grid_.Add(std::move(column));
  }

  std::string ToString() {
    for (size_t row = 0; row < all_.schedules.size(); ++row) {
      const VerifiedSchedule& schedule = all_.schedules[row];
      if (!schedule.ran()) grid_.ReplaceRow(row, WhyNoNumbers(schedule));
    }
    return grid_.ToString();
  }

 private:
  const Verification& all_;
  Grid grid_;
  bool grid_is_empty_ = true;
};

std::string NameOf(const VerifiedSchedule& schedule) { return schedule.schedule; }

TimeNs Largest(const Verification& all, TimeNs IterationFigures::*figure) {
  TimeNs largest = 1;
  for (const VerifiedSchedule& s : all.schedules) {
    largest = std::max({largest, s.predicted.*figure, s.measured.*figure});
  }
  return largest;
}

std::string Times(const Verification& all) {
  Table table(all);
  const Scale steps = Scale::ForTimes(Largest(all, &IterationFigures::step));
  const Scale exposed = Scale::ForTimes(Largest(all, &IterationFigures::exposed_communication));
  const std::string step = "step, " + steps.unit();
  const std::string waits = "exposed, " + exposed.unit();
  using S = VerifiedSchedule;
  table.Add("", "schedule", NameOf, /*left=*/true);
  table.Add(step, "pred", [&](const S& s) { return steps.Number(s.predicted.step); });
  table.Add(step, "meas", [&](const S& s) { return steps.Number(s.measured.step); });
  table.Add(step, "err %", [](const S& s) { return Signed(s.step_error()); });
  if (all.tokens_per_step > 0) {
    const auto rate = [&](TimeNs t) { return TokensPerSecond(all.tokens_per_step, t); };
    table.Add("tokens/s", "pred", [&](const S& s) { return rate(s.predicted.step); });
    table.Add("tokens/s", "meas", [&](const S& s) { return rate(s.measured.step); });
  }
  table.Add("idle, %", "pred", [](const S& s) { return PercentNumber(s.predicted.idle_share); });
  table.Add("idle, %", "meas", [](const S& s) { return PercentNumber(s.measured.idle_share); });
  table.Add("idle, %", "diff", [](const S& s) { return Signed(s.idle_difference()); });
  table.Add("bubble, %", "pred", [](const S& s) { return PercentNumber(s.predicted.bubble_rate); });
  table.Add("bubble, %", "meas", [](const S& s) { return PercentNumber(s.measured.bubble_rate); });
  table.Add(waits, "pred",
            [&](const S& s) { return exposed.Number(s.predicted.exposed_communication); });
  table.Add(waits, "meas",
            [&](const S& s) { return exposed.Number(s.measured.exposed_communication); });
  table.Add(
      "", "verdict", [&](const S& s) { return Verdict(s, all); }, /*left=*/true);
  return table.ToString();
}

// The stage that takes longest for it.
const VerifiedPass* Slowest(const VerifiedSchedule& schedule, Pass pass) {
  const VerifiedPass* slowest = nullptr;
  for (const VerifiedPass& each : schedule.passes) {
    if (each.pass != pass) continue;
    if (slowest == nullptr || each.p50 > slowest->p50) slowest = &each;
  }
  return slowest;
}

// Of all passes with matrix products, weighted by their time.
std::string GemmEfficiency(const VerifiedSchedule& schedule) {
  double time = 0;
  double used = 0;
  for (const VerifiedPass& pass : schedule.passes) {
    if (!pass.gemm_efficiency) continue;
    const double took = static_cast<double>(pass.p50) * static_cast<double>(pass.samples);
    time += took;
    used += took * *pass.gemm_efficiency;
  }
  return time == 0 ? "" : PercentNumber(used / time);
}

bool Any(const Verification& all, const std::function<bool(const VerifiedSchedule&)>& holds) {
  return std::any_of(all.schedules.begin(), all.schedules.end(), holds);
}

void AddPassColumns(const Verification& all, const Scale& scale, Table* table) {
  using S = VerifiedSchedule;
  for (const Pass pass : {Pass::kF, Pass::kB, Pass::kW, Pass::kBW}) {
    if (!Any(all, [&](const S& s) { return Slowest(s, pass) != nullptr; })) continue;
    const std::string group = fmt::format("{}, {}", Name(pass), scale.unit());
    const auto add = [&](const char* name, TimeNs VerifiedPass::*which) {
      table->Add(group, name, [&, which](const S& s) {
        const VerifiedPass* slowest = Slowest(s, pass);
        return slowest == nullptr ? std::string("-") : scale.Number(slowest->*which);
      });
    };
    add("P50", &VerifiedPass::p50);
    add("P95", &VerifiedPass::p95);
  }
}

// Passes of the slowest stage, and how far steps lie apart.
std::string SlowestPasses(const Verification& all) {
  Table table(all);
  using S = VerifiedSchedule;
  TimeNs largest = 1;
  for (const S& s : all.schedules) {
    for (const VerifiedPass& pass : s.passes) largest = std::max(largest, pass.p95);
  }
  table.Add("", "schedule", NameOf, /*left=*/true);
  AddPassColumns(all, Scale::ForTimes(largest), &table);
  const auto has_gemm = [](const S& s) { return !GemmEfficiency(s).empty(); };
  if (Any(all, has_gemm)) table.Add("GEMM", "eff %", GemmEfficiency);
  const std::string spread = "spread, %";
  if (Any(all, [](const S& s) { return s.calibration_spread > 0; })) {
    table.Add(spread, "cal", [](const S& s) { return PercentNumber(s.calibration_spread); });
  }
  table.Add(spread, "steps", [](const S& s) { return PercentNumber(s.spread); });
  table.Add(spread, "rounds", [](const S& s) {
    return s.round_steps.size() < 2 ? std::string("-") : PercentNumber(s.round_spread());
  });
  table.Add(spread, "range", [](const S& s) { return PercentNumber(s.range()); });
  std::string title = "passes of the slowest stage of each";
  if (all.micro_batch_size > 0) {
    title += fmt::format(", a micro-batch being {} x {} tokens", all.micro_batch_size,
                         all.sequence_length);
  }
  return title + "\n" + table.ToString();
}

std::string Both(int predicted, std::optional<int> measured) {
  if (!measured) return "-";
  return predicted == *measured ? fmt::format("{}", *measured)
                                : fmt::format("{} ({})", *measured, predicted);
}

// Of the rank whose ledger has most.
const VerifiedRank* Fullest(const VerifiedSchedule& schedule) {
  const auto at = std::max_element(
      schedule.memory.begin(), schedule.memory.end(),
      [](const VerifiedRank& a, const VerifiedRank& b) { return a.peak.ledger < b.peak.ledger; });
  return at == schedule.memory.end() ? nullptr : &*at;
}

// Of the rank that hands over most.
std::optional<Bytes> MostHandedOver(const VerifiedSchedule& schedule) {
  std::optional<Bytes> most;
  for (const VerifiedRank& rank : schedule.memory) {
    if (rank.handed_over) most = std::max(most.value_or(0), *rank.handed_over);
  }
  return most;
}

std::string Memory(const Verification& all) {
  Table table(all);
  using S = VerifiedSchedule;
  Bytes largest = 1;
  for (const S& s : all.schedules) {
    for (const VerifiedRank& rank : s.memory) {
      largest = std::max({largest, rank.peak.ledger, rank.peak.live});
    }
    largest = std::max(largest, s.resident_bytes.value_or(0));
  }
  const Scale scale = Scale::ForMemory(largest);
  const std::string peak = "peak, " + scale.unit();
  table.Add("", "schedule", NameOf, /*left=*/true);
  table.Add("waiting for", "B",
            [](const S& s) { return Both(s.waiting_b_predicted, s.waiting_b_measured); });
  table.Add("waiting for", "W",
            [](const S& s) { return Both(s.waiting_w_predicted, s.waiting_w_measured); });
  table.Add(peak, "ledger", [&](const S& s) {
    return Fullest(s) == nullptr ? "" : scale.Number(Fullest(s)->peak.ledger);
  });
  table.Add(peak, "live", [&](const S& s) -> std::string {
    if (all.emulated) return "-";
    return Fullest(s) == nullptr ? "" : scale.Number(Fullest(s)->peak.live);
  });
  table.Add("ranks", "equal", [&](const S& s) {
    if (all.emulated) return "-";
    return s.memory_matches() ? "yes" : "NO";
  });
  if (Any(all, [](const S& s) { return MostHandedOver(s).has_value(); })) {
    table.Add("handed", "over", [&](const S& s) {
      return MostHandedOver(s) ? scale.Number(*MostHandedOver(s)) : std::string("-");
    });
  }
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    const auto of = [c](const S& s) {
      return Fullest(s) == nullptr ? Bytes{0} : Fullest(s)->peak.most[static_cast<size_t>(c)];
    };
    if (!Any(all, [&](const S& s) { return of(s) != 0; })) continue;
    constexpr std::array<std::string_view, kNumMemoryCategories> kShort = {
        "param", "grad", "optim", "for B", "for W", "comm", "work", "frame"};
    table.Add("most of, " + scale.unit(), std::string(kShort[static_cast<size_t>(c)]),
              [&](const S& s) { return scale.Number(of(s)); });
  }
  if (Any(all, [](const S& s) { return s.resident_bytes.has_value(); })) {
    table.Add("resident", scale.unit(),
              [&](const S& s) { return s.resident_bytes ? scale.Number(*s.resident_bytes) : ""; });
    table.Add("resident", "ratio", [](const S& s) {
      return s.resident_ratio() ? fmt::format("{:.2f}", *s.resident_ratio()) : std::string();
    });
  }
  return table.ToString();
}

std::string Passes(const Verification& all) {
  std::string text;
  for (const VerifiedSchedule& schedule : all.schedules) {
    if (!schedule.ran()) continue;
    TimeNs largest = 1;
    for (const VerifiedPass& pass : schedule.passes) largest = std::max(largest, pass.p95);
    const Scale scale = Scale::ForTimes(largest);
    Grid grid;
    Grid::Column name{.name = "pass", .left = true};
    Grid::Column frozen{.group = scale.unit(), .name = "calibrated"};
    Grid::Column p50{.group = scale.unit(), .name = "P50"};
    Grid::Column p95{.group = scale.unit(), .name = "P95"};
    Grid::Column error{.name = "err %"};
    Grid::Column efficiency{.group = "GEMM", .name = "eff %"};
    Grid::Column count{.name = "samples"};
    for (const VerifiedPass& pass : schedule.passes) {
      name.cells.push_back(fmt::format("stage {} {}", pass.stage, Name(pass.pass)));
      frozen.cells.push_back(scale.Number(pass.calibrated));
      p50.cells.push_back(scale.Number(pass.p50));
      p95.cells.push_back(scale.Number(pass.p95));
      error.cells.push_back(pass.p50 == 0 ? ""
                                          : Signed(static_cast<double>(pass.calibrated - pass.p50) /
                                                   static_cast<double>(pass.p50)));
      efficiency.cells.push_back(pass.gemm_efficiency ? PercentNumber(*pass.gemm_efficiency) : "");
      count.cells.push_back(fmt::format("{}", pass.samples));
    }
    for (Grid::Column* column : {&name, &frozen, &p50, &p95, &error, &efficiency, &count}) {
      grid.Add(std::move(*column));
    }
    text += fmt::format("\n{}\n{}", schedule.schedule, grid.ToString());
  }
  return text;
}

std::string SignedNumber(const Scale& scale, TimeNs time) {
  return fmt::format("{}{}", time < 0 ? '-' : '+', scale.Number(std::abs(time)));
}

std::string ValidationVerdict(const VerifiedSchedule& schedule) {
  const ValidationCost& cost = *schedule.validation;
  std::string text;
  const auto add = [&](bool holds, std::string_view what) {
    if (!holds) return;
    if (!text.empty()) text += ", ";
    text += what;
  };
  add(cost.rollback_equal == false, "ROLLED BACK TO OTHER BITS");
  add(cost.rollback_equal == true, "rolled back =");
  add(!cost.memory_matches, "LEDGER DIFFERS");
  add(cost.noisy() || schedule.noisy(), "too noisy");
  add(!cost.rollback_note.empty(), cost.rollback_note);
  return text;
}

// What is shown of schedules that have it; nothing where none has.
std::string Validations(const Verification& all) {
  std::vector<const VerifiedSchedule*> shown;
  TimeNs largest = 1;
  TimeNs largest_cost = 1;
  for (const VerifiedSchedule& s : all.schedules) {
    if (!s.validation) continue;
    shown.push_back(&s);
    const ValidationCost& cost = *s.validation;
    largest = std::max({largest, cost.barrier_step.predicted, cost.barrier_step.measured});
    const PredictedAndMeasured path = cost.normal_path;
    const PredictedAndMeasured rollback = cost.rollback.value_or(PredictedAndMeasured{});
    for (const TimeNs each :
         {path.predicted, path.measured, rollback.predicted, rollback.measured}) {
      largest_cost = std::max(largest_cost, std::abs(each));
    }
  }
  if (shown.empty()) return "";
  const Scale steps = Scale::ForTimes(largest);
  const Scale costs = Scale::ForTimes(largest_cost);
  Grid grid;
  const auto add = [&](std::string group, std::string name, const auto& cell, bool left = false) {
    Grid::Column column{.group = std::move(group), .name = std::move(name), .left = left};
    for (const VerifiedSchedule* s : shown) column.cells.push_back(cell(*s));
    grid.Add(std::move(column));
  };
  using S = VerifiedSchedule;
  const std::string barrier = "barrier's step, " + steps.unit();
  const std::string path = "normal path, " + costs.unit();
  const std::string rollback = "one rollback, " + costs.unit();
  const auto rolled = [&](const S& s, TimeNs PredictedAndMeasured::*which) {
    const auto& of = s.validation->rollback;
    return of ? SignedNumber(costs, (*of).*which) : std::string("-");
  };
  add("", "schedule", NameOf, /*left=*/true);
  add(barrier, "pred",
      [&](const S& s) { return steps.Number(s.validation->barrier_step.predicted); });
  add(barrier, "meas",
      [&](const S& s) { return steps.Number(s.validation->barrier_step.measured); });
  add(path, "pred",
      [&](const S& s) { return SignedNumber(costs, s.validation->normal_path.predicted); });
  add(path, "meas",
      [&](const S& s) { return SignedNumber(costs, s.validation->normal_path.measured); });
  add(path, "diff",
      [&](const S& s) { return SignedNumber(costs, s.validation->normal_path.difference()); });
  add(rollback, "pred", [&](const S& s) { return rolled(s, &PredictedAndMeasured::predicted); });
  add(rollback, "meas", [&](const S& s) { return rolled(s, &PredictedAndMeasured::measured); });
  add(rollback, "diff", [&](const S& s) {
    const auto& of = s.validation->rollback;
    return of ? SignedNumber(costs, of->difference()) : std::string("-");
  });
  add("", "verdict", ValidationVerdict, /*left=*/true);
  return fmt::format("\nwhat {} costs over a barrier, and where one version is rejected\n{}",
                     all.tail, grid.ToString());
}

std::string Heading(const Verification& all) {
  std::string text = all.emulated
                         ? "EMULATED: passes sleep for their time and compute nothing; what is "
                           "measured here is ordering and communication\n"
                         : "";
  text += fmt::format("{}: {} {}ranks as {}, {} micro-batches", all.scenario, all.ranks,
                      all.emulated ? "emulated " : "", all.transport, all.micro_batches);
  if (all.micro_batch_size > 0) {
    text += fmt::format(" of {} x {} tokens", all.micro_batch_size, all.sequence_length);
  }
  text += fmt::format(", posting {}, tail {}\n", all.posting, all.tail);
  text += fmt::format("costs: {}\n", all.costs_from);
  if (all.best_gemm_flops) {
    text += fmt::format("best matrix product on one core while all compute: {:.1f} GFLOP/s\n",
                        *all.best_gemm_flops * 1e-9);
  }
  return text + "\n";
}

std::string OrderLines(const Verification& all) {
  const OrderVerdict verdict = JudgeOrder(all);
  std::string text =
      Wrap(fmt::format("order predicted: {}", fmt::join(OrderPredicted(all), " < ")), 17);
  text += "\n";
  text += Wrap(fmt::format("order measured:  {}", fmt::join(OrderMeasured(all), " < ")), 17);
  text += "\n";
  if (verdict.pairs == 0) return text;
  const size_t right = static_cast<size_t>(verdict.pairs) - verdict.wrong.size();
  text += fmt::format("Pairs that differ by more than 2 %: {} of {} in the order predicted", right,
                      verdict.pairs);
  if (verdict.wrong.empty()) return text + ".\n";
  text += "; but";
  for (const auto& [faster, slower] : verdict.wrong) {
    text += fmt::format("\n  {} is faster than {}", faster, slower);
  }
  return text + "\n";
}

// The last word: who is within the bar, and who is not.
std::string BarLines(const Verification& all) {
  const BarSummary bar = SumUpBars(all);
  const size_t count = bar.within.size() + bar.missed.size() + bar.too_noisy.size();
  if (count == 0) return "";
  const auto also = [](const std::vector<std::string>& names, std::string_view what) {
    if (names.empty()) return std::string();
    return fmt::format(", {} {} ({})", names.size(), what, fmt::join(names, ", "));
  };
  std::string text =
      Wrap(fmt::format("Bar ({}): {} of {} within{}{}.", BarInWords(all), bar.within.size(), count,
                       also(bar.missed, "missed"), also(bar.too_noisy, "too noisy")),
           2) +
      "\n";
  const size_t resident = bar.resident_within.size() + bar.resident_missed.size();
  if (resident == 0) return text;
  return text +
         Wrap(fmt::format("Resident size within {:.0f} % of the ledger of all ranks: {} of "
                          "{}{}.",
                          100 * kResidentBar, bar.resident_within.size(), resident,
                          also(bar.resident_missed, "missed")),
              2) +
         "\n";
}

// A core cannot overlap; so much for what "equal" says of them.
std::string PairLine(const Verification& all) {
  std::vector<std::string> names;
  for (const VerifiedSchedule& s : all.schedules) {
    if (s.ran() && s.reserves_for_pairs) names.push_back(s.schedule);
  }
  if (names.empty() || all.emulated) return "";
  return Wrap(fmt::format("F&B pairs of {}: a core runs one pass after the other, and the room of "
                          "their overlap is set aside as the costs have it, so it is not measured.",
                          fmt::join(names, ", ")),
              2) +
         "\n";
}

std::string Notes(const Verification& all) {
  std::string text;
  for (const VerifiedSchedule& schedule : all.schedules) {
    for (const std::string& finding : schedule.findings) {
      text += Wrap(fmt::format("{}: {}", schedule.schedule, finding), 2) + "\n";
    }
    const size_t shown = schedule.ran() ? 0 : 1;  // in place of its row
    for (size_t i = shown; i < schedule.failures.size(); ++i) {
      text += Wrap(fmt::format("{}: FAILED: {}", schedule.schedule, schedule.failures[i]), 2);
      text += "\n";
    }
    if (schedule.gradients_equal == false) {
      text += Wrap(fmt::format("{}: {}", schedule.schedule, schedule.gradients_note), 2) + "\n";
    }
  }
  const bool noisy = std::any_of(all.schedules.begin(), all.schedules.end(),
                                 [](const VerifiedSchedule& s) { return s.noisy(); });
  if (noisy) {
    text +=
        "Too noisy: the middle half of the measured steps or of the passes timed before, or the "
        "medians\n  of the rounds, lie more than 2 % apart; this is no pass. Let nothing else run, "
        "or give more\n  --rounds.\n";
  }
  if (all.interrupted) text += "Interrupted: what was run until then.\n";
  return text;
}

}  // namespace

std::string VerificationTable(const Verification& verification, bool details) {
  std::string text = Heading(verification) + Times(verification) + '\n' +
                     SlowestPasses(verification) + '\n' + Memory(verification);
  text += Validations(verification);
  if (details) text += Passes(verification);
  text += '\n';
  text += PairLine(verification) + Notes(verification) + OrderLines(verification);
  text += BarLines(verification);
  text += fmt::format(
      "{} runs of each, {} counted iterations each; calibrating {:.1f} s, searching {:.1f} s, "
      "running {:.1f} s\n",
      verification.rounds, verification.iterations, verification.calibrating_seconds,
      verification.searching_seconds, verification.running_seconds);
  return text;
}

}  // namespace spiritlevel
