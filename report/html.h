// The comparison as a page: one file that opens offline, in any browser of the last years.
//
//   HtmlReportInput input{.comparison = comparison};
//   for (each result) input.runs.push_back(PackRun(program, timeline, /*iterations=*/1));
//   WriteFile("report.html", HtmlReport(input));
//
// docs/report.md says what is on it and how each number is defined. Whatever comes from a file (the
// scenario's name, its text, a reason) is shown as text and can never become markup or script; the
// page's own policy lets nothing run but its one script, and nothing be loaded at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/provenance.h"
#include "report/result.h"
#include "report/waterfall.h"
#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

// What the page needs of one run, packed: a few bytes an op. Make it where the run was played; the
// Program and the Timeline need not be kept for the report. Empty for what could not run.
struct HtmlRun {
  std::string packed{};
  int64_t ops = 0;
  std::optional<Waterfall> waterfall{};
};

// The first `iterations` of the run. Fill in `waterfall` yourself (FindWaterfall).
HtmlRun PackRun(const Program& program, const Timeline& timeline, int iterations);

struct HtmlReportInput {
  const Comparison& comparison;
  std::vector<HtmlRun> runs{};  // of comparison.results, one each, in the same order
  std::string scenario_file{};  // as the user named it
  std::string scenario_text{};  // as the user wrote it
  std::vector<ProvenanceLine> provenance{};
};

std::string HtmlReport(const HtmlReportInput& input);

}  // namespace spiritlevel
