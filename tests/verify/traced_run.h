// Runs a Program with works that trace what they see, and judges the outcome.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "sim/analysis/check_timeline.h"
#include "sim/event.h"
#include "sim/program.h"
#include "tests/sim/run.h"
#include "tests/verify/reference_walk.h"
#include "tests/verify/tracing_work.h"
#include "verify/run.h"

namespace spiritlevel {

inline WorkFactory Tracing(const Costs& costs) {
  return [buckets = BucketsOf(costs)](const RankContext& context) {
    return std::make_shared<TracingWork>(context, buckets);
  };
}

inline std::vector<TracedResult> ResultsOf(const RunReport& report) {
  std::vector<TracedResult> results;
  for (const Payload& payload : report.results) {
    TracedResult& result = results.emplace_back();
    if (payload.size() != sizeof(result)) continue;
    std::memcpy(&result, payload.bytes().data(), sizeof(result));
  }
  return results;
}

inline std::string Words(const std::vector<Finding>& findings) {
  std::string words;
  for (const Finding& f : findings) words += f.rule + ": " + f.what + "\n";
  return words;
}

inline void PrintTo(const TracedResult& result, std::ostream* out) {
  *out << std::hex << result.parameters << " " << result.norms << std::dec << " " << result.kept;
}

// Every rule for predicted timelines holds for this one as well, and its accounts add up.
inline void ExpectLegal(const Program& program, const Costs& costs, const Timeline& timeline) {
  const std::vector<Event> events = CollectEvents(program, timeline, program.num_iterations());
  EXPECT_EQ(Words(CheckTimeline(events, std::nullopt)), "");
  EXPECT_EQ(Words(CheckAccounts(events, AccountForStalls(program, costs, timeline))), "");
}

inline void ExpectRunsRight(const Schedule& schedule, const Costs& costs,
                            const LoweringOptions& options, const RunOptions& run_options = {}) {
  const Program program = Lower(schedule, costs, options);
  const RunReport report = RunProgram(program, Tracing(costs), run_options);
  ASSERT_FALSE(report.failure) << report.failure->message;
  EXPECT_EQ(ResultsOf(report), ReferenceWalk(schedule, costs, options, run_options.replicas).Run());
  for (const Timeline& timeline : report.timelines) ExpectLegal(program, costs, timeline);
}

}  // namespace spiritlevel
