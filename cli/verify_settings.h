// How verify runs schedules, and what its runs have in common.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verify_costs.h"
#include "report/verification_figures.h"
#include "sim/analysis/check_findings.h"
#include "sim/memory.h"
#include "sim/program.h"
#include "sim/timeline.h"
#include "verify/model_plan_record.h"
#include "verify/run.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {

struct VerifySettings {
  Tail tail = Tail::kBarrier;
  Posting posting = Posting::kIdeal;
  Receives receives = Receives::kEarly;
  int iterations = 4;  // that count, of each run
  int rounds = 3;      // runs of each schedule
  bool emulated = false;
  Transport transport = Transport::kThreads;
  std::vector<int> cores{};   // by rank; empty: ranks are not pinned
  double search_seconds = 2;  // for a searched schedule
  const std::atomic<bool>* stop = nullptr;
  // How long a rank may be in one node while others wait; none: RunOptions'.
  std::optional<TimeNs> stall_limit{};
  // In which a run that has failed must come back, or the process ends. Ranks that are processes
  // are killed before that.
  TimeNs grace = 5'000'000'000;
  // Told before each run.
  std::function<void(int done, int all, const std::string& schedule)> observer{};
  // What runs instead of a schedule's works, asked once a run: for tests.
  std::function<WorkFactory(WorkFactory)> wrap{};
};

// Of a run: one cold iteration, those that count, and a last that only ends the one before.
inline int IterationsOf(const VerifySettings& settings) { return settings.iterations + 2; }

inline LoweringOptions LoweringFor(const VerifySettings& settings, int iterations) {
  return {.posting = settings.posting,
          .tail = settings.tail,
          .iterations = iterations,
          .receives = settings.receives};
}

// `schedule` stands before what is said of a failure, at once and on standard error.
//
// Runs `program`, of `task` or, emulated, of none, on the ranks that the settings name, under the
// tail that it was lowered with.
RunReport RunFor(const VerifySettings& settings, const std::string& schedule,
                 const Program& program, const TrainingTask* task,
                 const std::vector<GradientFault>& faults = {});
// The same, not timed: with every bit of what training comes to. Never emulated.
RunReport RunRecorded(const VerifySettings& settings, const std::string& schedule,
                      const Program& program, const TrainingTask& task);

// What a rank's work has metered; nothing where it meters nothing, as under emulation.
std::optional<MemoryRecord> MemoryOf(const RunReport& report, size_t rank);
MemoryByCategory CategoriesOf(const MemoryRecord& memory);
// Whether what was metered is what the ledger says, by rank and in each category.
bool MetersMatch(const RunReport& report, const std::vector<PeakMemory>& peaks);

std::vector<Finding> CheckRun(const Program& program, const Timeline& timeline,
                              std::optional<Bytes> limit);
// Each rule once, with the first that breaks it. `of` says of which timeline.
void AddFindings(const std::vector<Finding>& findings, std::string_view of,
                 std::vector<std::string>* all);

}  // namespace spiritlevel
