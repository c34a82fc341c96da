// How verify runs schedules, and what its runs have in common.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verify_costs.h"
#include "sim/analysis/check_findings.h"
#include "sim/program.h"
#include "sim/timeline.h"
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
  // Told before each run.
  std::function<void(int done, int all, const std::string& schedule)> observer{};
  // What runs instead of a schedule's works: for tests.
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

// Runs `program`, of `task` or, emulated, of none, on the ranks that the settings name, under the
// tail that it was lowered with.
RunReport RunFor(const VerifySettings& settings, const Program& program, const TrainingTask* task,
                 const std::vector<GradientFault>& faults = {});
// The same, not timed: with every bit of what training comes to. Never emulated.
RunReport RunRecorded(const VerifySettings& settings, const Program& program,
                      const TrainingTask& task);

std::vector<Finding> CheckRun(const Program& program, const Timeline& timeline,
                              std::optional<Bytes> limit);
// Each rule once, with the first that breaks it. `of` says of which timeline.
void AddFindings(const std::vector<Finding>& findings, std::string_view of,
                 std::vector<std::string>* all);

}  // namespace spiritlevel
