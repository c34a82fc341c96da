#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

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

std::string Verdict(const VerifiedSchedule& schedule) {
  std::string text;
  const auto add = [&](bool holds, std::string_view what) {
    if (!holds) return;
    if (!text.empty()) text += ", ";
    text += what;
  };
  add(!schedule.findings.empty(), "ILLEGAL");
  add(schedule.gradients_equal == false, "GRADIENTS DIFFER");
  add(schedule.gradients_equal == true, "gradients =");
  add(schedule.noisy(), "too noisy");
  return text;
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
      if (!schedule.ran()) grid_.ReplaceRow(row, schedule.reason);
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
  const bool calibrated =
      std::any_of(all.schedules.begin(), all.schedules.end(),
                  [](const VerifiedSchedule& s) { return s.calibration_spread > 0; });
  if (calibrated) {
    table.Add("spread, %", "cal", [](const S& s) { return PercentNumber(s.calibration_spread); });
  }
  table.Add(calibrated ? "spread, %" : "spread", calibrated ? "runs" : "%",
            [](const S& s) { return PercentNumber(s.spread); });
  table.Add("", "verdict", Verdict, /*left=*/true);
  return table.ToString();
}

std::string Both(int predicted, int measured) {
  return predicted == measured ? fmt::format("{}", measured)
                               : fmt::format("{} ({})", measured, predicted);
}

// Of the rank whose ledger has most.
const VerifiedRank* Fullest(const VerifiedSchedule& schedule) {
  const auto at = std::max_element(
      schedule.memory.begin(), schedule.memory.end(),
      [](const VerifiedRank& a, const VerifiedRank& b) { return a.peak.ledger < b.peak.ledger; });
  return at == schedule.memory.end() ? nullptr : &*at;
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
  table.Add(peak, all.emulated ? "emulated" : "live", [&](const S& s) {
    return Fullest(s) == nullptr ? "" : scale.Number(Fullest(s)->peak.live);
  });
  table.Add("all ranks", "equal", [](const S& s) { return s.memory_matches() ? "yes" : "NO"; });
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    const auto of = [c](const S& s) {
      return Fullest(s) == nullptr ? Bytes{0} : Fullest(s)->peak.most[static_cast<size_t>(c)];
    };
    const bool any = std::any_of(all.schedules.begin(), all.schedules.end(),
                                 [&](const S& s) { return of(s) != 0; });
    if (!any) continue;
    constexpr std::array<std::string_view, kNumMemoryCategories> kShort = {
        "param", "grad", "optim", "for B", "for W", "comm", "work", "frame"};
    table.Add("most of, " + scale.unit(), std::string(kShort[static_cast<size_t>(c)]),
              [&](const S& s) { return scale.Number(of(s)); });
  }
  const bool resident = std::any_of(all.schedules.begin(), all.schedules.end(),
                                    [](const S& s) { return s.resident_bytes.has_value(); });
  if (resident) {
    table.Add("process", "resident",
              [&](const S& s) { return s.resident_bytes ? scale.Number(*s.resident_bytes) : ""; });
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
  if (verdict.wrong.empty()) {
    return text +
           fmt::format("The {} pairs that differ by more than 2 % are in order.\n", verdict.pairs);
  }
  text += fmt::format("Of {} pairs that differ by more than 2 %, {} are predicted the other way:",
                      verdict.pairs, verdict.wrong.size());
  for (const auto& [faster, slower] : verdict.wrong) {
    text += fmt::format("\n  {} is faster than {}", faster, slower);
  }
  return text + "\n";
}

std::string Notes(const Verification& all) {
  std::string text;
  for (const VerifiedSchedule& schedule : all.schedules) {
    for (const std::string& finding : schedule.findings) {
      text += Wrap(fmt::format("{}: {}", schedule.schedule, finding), 2) + "\n";
    }
    if (schedule.ran() && !schedule.reason.empty()) {
      text += Wrap(fmt::format("{}: {}", schedule.schedule, schedule.reason), 2) + "\n";
    }
  }
  const bool noisy = std::any_of(all.schedules.begin(), all.schedules.end(),
                                 [](const VerifiedSchedule& s) { return s.noisy(); });
  if (noisy) {
    text +=
        "Too noisy: the middle half of the measured steps, or of the passes that were timed before,"
        "\n  spreads over more than 2 %; this is no pass. Let nothing else run, or give more "
        "--rounds.\n";
  }
  if (all.interrupted) text += "Interrupted: what was run until then.\n";
  return text;
}

}  // namespace

std::string VerificationTable(const Verification& verification, bool details) {
  std::string text = Heading(verification) + Times(verification) + '\n' + Memory(verification);
  text += Validations(verification);
  if (details) text += Passes(verification);
  text += '\n';
  text += OrderLines(verification) + Notes(verification);
  text += fmt::format(
      "{} runs of each, {} counted iterations each; calibrating {:.1f} s, searching {:.1f} s, "
      "running {:.1f} s\n",
      verification.rounds, verification.iterations, verification.calibrating_seconds,
      verification.searching_seconds, verification.running_seconds);
  return text;
}

}  // namespace spiritlevel
