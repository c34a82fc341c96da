// How good a search is: against proved optima, lower bounds and the published figures.
//
// Times on shared machines are noisy, so budgets are counts of evaluations, some of what the same
// number of seconds allows on one core; ./run_tests --long runs them all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "sim/search/bound.h"
#include "sim/search/search.h"
#include "sim/search/zb_heuristic.h"
#include "sim/search/zb_v_heuristic.h"
#include "tests/sanitized.h"
#include "tests/sim/profiled_settings.h"
#include "tests/sim/run.h"
#include "tests/sim/tiny_optima.h"

namespace spiritlevel {
namespace {

constexpr Bytes kActivation = 2000;

bool IsLong() { return std::getenv("SPIRITLEVEL_LONG_TESTS") != nullptr; }

struct Profiled {
  std::unique_ptr<Costs> costs;
  SearchProblem problem;
  double work = 0;

  double Rate(TimeNs span) const { return 1 - work / static_cast<double>(span); }
};

Profiled ProblemOf(const ProfiledSetting& s, bool v, double limit_in_ranks) {
  const int chunks = v ? 2 : 1;
  const StageCost cost = SumOfParts(1000 * s.forward_us / chunks, 1000 * s.input_grad_us / chunks,
                                    1000 * s.weight_grad_us / chunks, kActivation / chunks,
                                    kActivation / chunks * s.weight_state_permil / 1000);
  Profiled made;
  const Placement placement{v ? PlacementForm::kV : PlacementForm::kLinear, s.ranks, chunks};
  made.costs = std::make_unique<Costs>(Costs::Uniform(placement.num_stages(), s.micro_batches, cost,
                                                      {.hop = {.latency = 1000 * s.transfer_us}}));
  const auto limit =
      static_cast<Bytes>(limit_in_ranks * s.ranks * static_cast<double>(kActivation));
  made.problem = {.placement = placement,
                  .costs = made.costs.get(),
                  .limits = std::vector<Bytes>(static_cast<size_t>(s.ranks), limit)};
  made.work = 1000.0 * s.micro_batches * (s.forward_us + s.input_grad_us + s.weight_grad_us);
  return made;
}

std::vector<Orders> SeedsFor(const SearchProblem& problem) {
  const bool v = problem.placement.form == PlacementForm::kV;
  std::vector<Orders> seeds;
  for (const ScheduleInfo& info : AllSchedules()) {
    const bool fits = v ? info.placement == "V" : info.placement == "linear";
    if (!fits) continue;
    try {
      seeds.push_back(
          info.Make({.ranks = problem.placement.ranks, .micro_batches = problem.micro_batches()},
                    *problem.costs)
              .ToOrders());
    } catch (const InputError&) {
      // Not on this shape.
    }
  }
  seeds.push_back(v ? BestZbVHeuristic(problem) : BestZbHeuristic(problem));
  return seeds;
}

SearchAnswer Solve(const SearchProblem& problem, SearchOptions options) {
  options.seeds = SeedsFor(problem);
  options.lower_bound = LowerBound(problem).value;
  return Search(problem, options);
}

TEST(SearchQuality, OnTinyProblemsItIsNearlyAlwaysOptimalAndNeverTwoPercentOff) {
  // Everything takes ten times as long, and what stands here is about answers and not about memory;
  // search_test.cc is what sanitizers look at.
  if (kSanitized) GTEST_SKIP() << "quality is looked at without sanitizers";
  int optimal = 0;
  int count = 0;
  for (const TinyOptimum& tiny : ReadTinyOptima("tests/data/search_optima.txt")) {
    const SearchProblem problem = tiny.problem();
    const SearchAnswer answer = Solve(problem, {.evaluations = 100'000, .seed = 1});
    ++count;
    optimal += answer.value == tiny.span ? 1 : 0;
    EXPECT_GE(answer.value, tiny.span) << tiny.line;
    EXPECT_LE(static_cast<double>(answer.value), 1.02 * static_cast<double>(tiny.span))
        << tiny.line;
  }
  EXPECT_EQ(count, 100);
  EXPECT_GE(optimal, 95);
}

// At p and 1.5 p activations the bound is reached, and with it the best there is.
class AtTheBound : public testing::TestWithParam<int> {};

TEST_P(AtTheBound, IsProvedOptimalAtPAndOneAndAHalfP) {
  if (kSanitized) GTEST_SKIP() << "quality is looked at without sanitizers";
  const ProfiledSetting& setting = kProfiledSettings[static_cast<size_t>(GetParam())];
  for (const double limit : {1.0, 1.5}) {
    const Profiled p = ProblemOf(setting, false, limit);
    const SearchAnswer answer =
        Solve(p.problem, {.evaluations = 24'000'000 / setting.micro_batches / setting.ranks});
    const Certificate certificate = Certify(p.problem, answer.value);
    EXPECT_TRUE(certificate.proved_optimal)
        << setting.model << " m=" << setting.micro_batches << " at " << limit << " p: gap "
        << certificate.gap << ", bubble rate " << p.Rate(answer.value);
  }
}

INSTANTIATE_TEST_SUITE_P(ProfiledSettings, AtTheBound, testing::Range(0, 12));

// Published rates at 2 p, arXiv 2401.10241, table 5, ZB-2p.
constexpr std::array<double, 12> kPublishedAt2p = {0.0433, 0.0039, 0.0026, 0.0029, 0.0022, 0.0010,
                                                   0.0066, 0.0054, 0.0028, 0.0038, 0.0029, 0.0018};

TEST(SearchQuality, At2pItIsNeverAboveThePublishedAndWithinPartsOfAPercentOfTheBound) {
  if (kSanitized) GTEST_SKIP() << "quality is looked at without sanitizers";
  double gaps = 0;
  for (size_t i = 0; i < kProfiledSettings.size(); ++i) {
    const ProfiledSetting& setting = kProfiledSettings[i];
    const Profiled p = ProblemOf(setting, false, 2);
    const int64_t budget =
        (IsLong() ? 120'000'000 : 20'000'000) / setting.micro_batches / setting.ranks;
    const SearchAnswer answer = Solve(p.problem, {.evaluations = budget});
    const Certificate certificate = Certify(p.problem, answer.value);
    gaps += certificate.gap;
    EXPECT_LT(p.Rate(answer.value), kPublishedAt2p[i] + 5e-5)
        << setting.model << " m=" << setting.micro_batches;
    const bool room = p.Rate(certificate.lower_bound) < kPublishedAt2p[i] - 5e-5;
    if (room && IsLong()) {
      EXPECT_LT(p.Rate(answer.value), kPublishedAt2p[i] - 5e-5)
          << setting.model << " m=" << setting.micro_batches;
    }
  }
  EXPECT_LE(gaps / 12, 0.0015);
}

// What a study of this problem reached in 1 s (p = 8), 5 s (16) and 10 s (32) on one core.
constexpr std::array<double, 12> kReachableAt075p = {0.28,  0.272, 0.235, 0.235, 0.22,  0.18,
                                                     0.232, 0.202, 0.148, 0.237, 0.204, 0.153};

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// As many evaluations as one core makes in that time, were it left alone.
SearchAnswer SolveOnOneCore(const SearchProblem& problem, double seconds) {
  const double begin = CpuSeconds();
  const int64_t tried = Solve(problem, {.seconds = 0.3, .threads = 1}).evaluations;
  const double rate = static_cast<double>(tried) / (CpuSeconds() - begin);
  return Solve(problem,
               {.evaluations = static_cast<int64_t>(rate * seconds), .islands = 1, .threads = 1});
}

TEST(SearchQuality, At075pItReachesWhatAStudyDidInTheSameTime) {
  if (!IsLong()) GTEST_SKIP() << "a minute and a half of searching: ./run_tests --long";
  for (size_t i = 0; i < kProfiledSettings.size(); ++i) {
    const ProfiledSetting& setting = kProfiledSettings[i];
    const Profiled p = ProblemOf(setting, false, 0.75);
    const double seconds = setting.ranks == 8 ? 1 : setting.ranks == 16 ? 5 : 10;
    const SearchAnswer answer = SolveOnOneCore(p.problem, seconds);
    EXPECT_LE(p.Rate(answer.value), kReachableAt075p[i])
        << setting.model << " m=" << setting.micro_batches;
  }
}

struct VFigure {
  double limit;
  std::array<double, 4> rate;  // 1.5B m = 24, 6.2B m = 24, 14.6B m = 48, 28.3B m = 96
};
constexpr std::array<VFigure, 3> kV = {{{0.5, {0.24, 0.206, 0.21, 0.216}},
                                        {0.625, {0.171, 0.148, 0.168, 0.178}},
                                        {0.75, {0.14, 0.115, 0.145, 0.155}}}};

TEST(SearchQuality, OnVPlacementsItReachesTheStudysFigures) {
  if (!IsLong()) GTEST_SKIP() << "four minutes of searching: ./run_tests --long";
  for (const VFigure& figure : kV) {
    for (size_t i = 0; i < 4; ++i) {
      const ProfiledSetting& setting = kProfiledSettings[3 * i];
      const Profiled p = ProblemOf(setting, true, figure.limit);
      const SearchAnswer answer = SolveOnOneCore(p.problem, 20);
      EXPECT_LE(p.Rate(answer.value), figure.rate[i])
          << setting.model << " m=" << setting.micro_batches << " at " << figure.limit << " p";
    }
  }
}

TEST(SearchQuality, OnVPlacementsAtPItIsProvedOptimal) {
  for (size_t i = 0; i < 4; ++i) {
    const Profiled p = ProblemOf(kProfiledSettings[3 * i], true, 1);
    const SearchAnswer answer = Solve(p.problem, {.evaluations = 2000});
    EXPECT_TRUE(Certify(p.problem, answer.value).proved_optimal) << kProfiledSettings[3 * i].model;
  }
}

}  // namespace
}  // namespace spiritlevel
