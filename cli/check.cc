#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/play.h"
#include "cli/profile.h"
#include "scenarios/torch_csv.h"
#include "sim/analysis/check_schedule.h"

namespace spiritlevel {
namespace {

// Times of one unit a pass, so that a count of units says how good an order is by itself.
Scenario UnitScenario(const ScheduleVerdict& verdict) {
  Scenario scenario{.name = "unit times",
                    .ranks = verdict.ranks,
                    .micro_batches = verdict.micro_batches,
                    .memory_limit = {},
                    .slices = {},
                    .warnings = {}};
  scenario.slices.ranks = verdict.ranks;
  scenario.slices.micro_batches = verdict.micro_batches;
  scenario.slices.uniform = false;
  scenario.slices.rows = verdict.stages;
  scenario.slices.table.assign(static_cast<size_t>(verdict.stages), {.forward = 1,
                                                                     .input_grad = 1,
                                                                     .weight_grad = 1,
                                                                     .fused_backward = 2,
                                                                     .overlapped = 3,
                                                                     .activation = 1});
  return scenario;
}

void DescribeUnitRun(const ScheduleChoice& choice, const ScheduleVerdict& verdict) {
  const Played played = Play(UnitScenario(verdict), choice, {});
  if (!played.result.summary) throw InputError(played.result.reason);
  const Summary& summary = *played.result.summary;
  Print(
      fmt::format("with F = B = W = 1 a stage, BW = 2, F&B = 3 and free transfers: makespan {}, "
                  "longest rank span {},\n"
                  "busiest rank {}; at most {} stage activations at once on a rank\n",
                  summary.makespan, summary.max_rank_span,
                  *std::max_element(summary.stalls.busy.begin(), summary.stalls.busy.end()),
                  summary.peak_waiting_b));
  if (!played.result.valid) throw InputError(played.result.reason);
}

void CheckScheduleFile(const std::string& file) {
  const ScheduleChoice choice = ScheduleFromFile(file);
  const ScheduleVerdict verdict = CheckSchedule(*choice.orders);
  Print(fmt::format("{}: {}\n", choice.name, verdict.description));
  for (const std::string& note : choice.notes) Print(fmt::format("note: {}\n", note));
  if (!verdict.legal()) {
    std::string problem = fmt::format("{}: is not a legal schedule", file);
    for (const Finding& finding : verdict.findings) problem += "\n  " + finding.what;
    throw InputError(std::move(problem));
  }
  DescribeUnitRun(choice, verdict);
  Print("legal: every pass once, all dependencies kept, no deadlock\n");
}

void CheckScenarioFile(const std::string& file, const std::string& profile) {
  const Scenario scenario = WithProfile(LoadScenario(file), file, profile).scenario;
  Print(fmt::format("{}: scenario of {} ranks and {} micro-batches\n", file, scenario.ranks,
                    scenario.micro_batches));
  for (const std::string& warning : scenario.warnings) Print("warning: " + warning + "\n");
  std::vector<ScheduleChoice> choices;
  for (const ScheduleInfo& info : AllSchedules()) choices.push_back(NamedSchedule(info.name));
  bool all_valid = true;
  const Compared compared = Compare(scenario, choices, {});
  for (const Result& result : compared.comparison.results) {
    const char* verdict = !result.summary ? "cannot run"
                          : !result.valid ? "NOT LEGAL"
                          : !result.fits  ? "legal, but does not fit"
                                          : "legal";
    const char* colon = result.reason.empty() ? "" : ": ";
    Print(fmt::format("  {:15} {}{}{}\n", result.schedule, verdict, colon, result.reason));
    all_valid &= !result.summary || result.valid;
  }
  SPIRITLEVEL_CHECK(all_valid, "every schedule of the catalog passes the checker");
}

// By its ending; whatever is no scenario is taken for a schedule.
bool IsScenarioFile(const std::string& file) {
  const std::string ending = std::filesystem::path(file).extension().string();
  for (const char* scenario : {".textproto", ".txtpb", ".pbtxt", ".json"}) {
    if (ending == scenario) return true;
  }
  return std::filesystem::is_directory(file);
}

}  // namespace

void AddCheck(CLI::App& app) {
  const auto file = std::make_shared<std::string>();
  const auto profile = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand(
      "check", "Judge a schedule file (PyTorch CSV), or every named schedule on a scenario");
  sub->add_option("FILE", *file, "Schedule (.csv) or scenario (.textproto, .json)")->required();
  RefuseEmptyName(
      sub->add_option("--profile", *profile, "Device profile, for a scenario with a model"));
  sub->callback([file, profile] {
    if (IsScenarioFile(*file)) return CheckScenarioFile(*file, *profile);
    if (!profile->empty()) {
      throw InputError("--profile: an order of passes has no times", "leave it out");
    }
    CheckScheduleFile(*file);
  });
}

}  // namespace spiritlevel
