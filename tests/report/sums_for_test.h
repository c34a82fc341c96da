// Runs with everything that a Program can hold: gradient buckets, twins, tied embeddings, each kind
// of tail, a rejected version; static memory in each category.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/costs.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/timeline.h"
#include "tests/report/page_for_test.h"

namespace spiritlevel {

struct SumsForTest {
  std::string_view schedule = "1f1b";
  LoweringOptions options{};  // at least kPeriodIterations iterations are played
  int ranks = 4;
  int micro_batches = 8;
  bool buckets = true;  // three of each stage, of unequal shares
  bool twins = true;    // where the schedule has any
  bool tied = true;     // where the schedule's ends lie on two ranks
  TimeNs unit = 1'000'000;
};

struct PlayedWithSums {
  Schedule schedule;
  Costs costs;
  LoweringOptions options;
  Program program;
  Timeline timeline;
  Summary summary;
};

PlayedWithSums Play(const SumsForTest& scenario);

// One row for each, named by its schedule, tail and order of W's.
PageForTest MakePage(const std::vector<SumsForTest>& scenarios, int iterations);

// Six that have everything between them.
std::vector<SumsForTest> EverythingOnAPage();

}  // namespace spiritlevel
