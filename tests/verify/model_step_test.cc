// A real transformer, split in F, B and W and run by every schedule: all of it has the bits of a
// plain loop on one rank that adds gradients up in the schedule's order.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/verify/model_run.h"

namespace spiritlevel {
namespace {

struct Case {
  int ranks = 1;
  int stages_per_rank = 1;
};

// What the catalog allows there, in its order, told once more: one that drops out is not tested,
// and is to be missed.
std::vector<std::string_view> AllowedBy(const Case& c) {
  if (c.stages_per_rank > 2) return {"interleaved", "interleaved-zb"};
  if (c.stages_per_rank == 2) {
    return {"interleaved", "interleaved-zb", "zb-v", "zb-v-auto", "v-half", "v-min", "dualpipe-v"};
  }
  std::vector<std::string_view> names = {"gpipe", "1f1b",  "interleaved", "zb-h1",
                                         "zb-h2", "zb-1p", "zb-2p",       "interleaved-zb"};
  if (c.ranks > 1) names.push_back("dualpipe");  // which has ranks in pairs
  return names;
}

class EverySchedule : public testing::TestWithParam<Case> {};

// Losses, gradients, norm, clip coefficient, parameters, moments, step, rate and samples; and the
// bytes that are live at each node are the ledger's.
TEST_P(EverySchedule, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  const Case& c = GetParam();
  const Shape shape{.ranks = c.ranks,
                    .micro_batches = std::max(4, 2 * c.ranks),
                    .stages_per_rank = c.stages_per_rank};
  std::vector<std::string_view> schedules;
  std::set<std::string> seen;  // a form that does not know chunks comes with each number of them
  for (const ScheduleInfo& info : AllSchedules()) {
    const std::optional<Schedule> schedule = ScheduleFor(info, shape);
    if (!schedule || info.stages_per_rank(shape) != c.stages_per_rank) continue;
    schedules.push_back(info.name);
    if (!seen.insert(schedule->ToString()).second) continue;
    SCOPED_TRACE(std::string(info.name) + " on " + std::to_string(c.ranks) + " ranks");
    ExpectModelRunsRight(TinyTask(*schedule), *schedule,
                         {.tail = Tail::kBarrier, .iterations = c.ranks <= 4 ? 3 : 2});
  }
  EXPECT_EQ(schedules, AllowedBy(c));
}

INSTANTIATE_TEST_SUITE_P(RanksAndStages, EverySchedule,
                         testing::Values(Case{1, 1}, Case{1, 2}, Case{1, 3}, Case{1, 4}, Case{2, 1},
                                         Case{2, 2}, Case{2, 3}, Case{2, 4}, Case{4, 1}, Case{4, 2},
                                         Case{4, 3}, Case{4, 4}, Case{8, 1}, Case{8, 2}, Case{8, 3},
                                         Case{8, 4}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "Ranks" +
                                  std::to_string(test.param.stages_per_rank) + "Stages";
                         });

}  // namespace
}  // namespace spiritlevel
