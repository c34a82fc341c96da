#include "cli/verify_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "cli/verify_guard.h"
#include "sim/analysis/check_timeline.h"
#include "sim/event.h"
#include "verify/emulated_work.h"
#include "verify/model_work.h"

namespace spiritlevel {
namespace {

// A barrier's step needs no transaction, and has none, as a plain training loop has none.
TailFactory TailFor(const Program& program, const TrainingTask& task,
                    const std::vector<GradientFault>& faults) {
  if (!IsPostValidation(program.tail())) return {};
  return TransactionalTails(task, {.faults = faults}, MakePrefixTable(task));
}

RunReport RunWorks(const VerifySettings& settings, const std::string& schedule,
                   const Program& program, WorkFactory works) {
  if (settings.wrap) works = settings.wrap(std::move(works));
  const RunGuard guard(schedule, settings.grace);
  return RunProgram(program, works,
                    {.transport = settings.transport,
                     .cores = settings.cores,
                     .emulate_delays = settings.emulated,
                     .stall_limit = settings.stall_limit,
                     .on_failure = guard.listener()});
}

}  // namespace

RunReport RunFor(const VerifySettings& settings, const std::string& schedule,
                 const Program& program, const TrainingTask* task,
                 const std::vector<GradientFault>& faults) {
  const bool emulated = settings.emulated;
  return RunWorks(
      settings, schedule, program,
      emulated ? WorkFactory([](const RankContext& c) { return std::make_shared<EmulatedWork>(c); })
               : ModelWorks(*task, {.make_tail = TailFor(program, *task, faults)}));
}

RunReport RunRecorded(const VerifySettings& settings, const std::string& schedule,
                      const Program& program, const TrainingTask& task) {
  return RunWorks(settings, schedule, program,
                  ModelWorks(task, {.record = true, .make_tail = TailFor(program, task, {})}));
}

std::optional<MemoryRecord> MemoryOf(const RunReport& report, size_t rank) {
  if (report.results.at(rank).size() == 0) return std::nullopt;
  return ParseRankRecord(report.results[rank].bytes()).memory;
}

MemoryByCategory CategoriesOf(const MemoryRecord& memory) {
  MemoryByCategory categories{};
  std::copy(memory.peak_by_use.begin(), memory.peak_by_use.end(), categories.begin());
  return categories;
}

bool MetersMatch(const RunReport& report, const std::vector<PeakMemory>& peaks) {
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    if (peaks[rank].ledger != peaks[rank].live) return false;
    const std::optional<MemoryRecord> memory = MemoryOf(report, rank);
    if (memory && CategoriesOf(*memory) != peaks[rank].most) return false;
  }
  return true;
}

std::vector<Finding> CheckRun(const Program& program, const Timeline& timeline,
                              std::optional<Bytes> limit) {
  TimelineChecker checker(limit);
  ForEachEvent(program, timeline, program.num_iterations(),
               [&](const Event& event) { checker.Add(event); });
  return checker.Finish();
}

void AddFindings(const std::vector<Finding>& findings, std::string_view of,
                 std::vector<std::string>* all) {
  std::map<std::string, int> times;
  for (const Finding& finding : findings) ++times[finding.rule];
  for (const Finding& finding : findings) {
    const auto at = times.find(finding.rule);
    if (at == times.end()) continue;
    std::string text = fmt::format("{}: {}: {}", of, finding.rule, finding.what);
    if (at->second > 1) text += fmt::format(" (and {} more)", at->second - 1);
    times.erase(at);
    if (std::find(all->begin(), all->end(), text) == all->end()) all->push_back(std::move(text));
  }
}

}  // namespace spiritlevel
