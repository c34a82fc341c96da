#include "tests/report/verification_for_test.h"

#include <span>
#include <utility>

#include "report/verification_figures.h"
#include "report/waterfall.h"
#include "sim/analysis/summary.h"
#include "sim/costs.h"
#include "sim/engine.h"
#include "sim/schedules/catalog.h"

namespace spiritlevel {
namespace {

constexpr int kIterations = 6;  // what FindWaterfall() plays, and more

Costs CostsOf(const Schedule& schedule, TimeNs unit) {
  return Costs::Uniform(schedule.num_stages(), schedule.num_micro_batches(),
                        {.forward = 9 * unit,
                         .input_grad = 10 * unit,
                         .weight_grad = 8 * unit,
                         .fused_backward = 18 * unit,
                         .overlapped = 26 * unit,
                         .activation = 30 << 20,
                         .weight_state = 12 << 20},
                        {.hop = {.latency = unit / 10, .busy = unit / 20},
                         .optimizer = 3 * unit,
                         .barrier = unit / 4,
                         .static_bytes = 90 << 20});
}

struct RunForTest {
  Costs costs;
  Program one;
  Timeline timeline;
  IterationFigures figures;
};

RunForTest RunOf(const Schedule& schedule, TimeNs unit) {
  Costs costs = CostsOf(schedule, unit);
  const Program program = Lower(schedule, costs, {.iterations = kIterations});
  Program one = Lower(schedule, costs, {.iterations = 1});
  const Timeline timeline = SimulateInOrder(program);
  const std::vector<IterationFigures> all = FiguresByIteration(program, timeline);
  return {.costs = std::move(costs),
          .one = one,
          .timeline = OneIteration(program, timeline, 1, one),
          .figures = MedianOf(std::span(all).subspan(1))};
}

void Draw(const RunForTest& run, const std::string& name, Result* result, HtmlRun* drawn) {
  *result = {.schedule = name};
  result->summary = Summarize(run.one, run.costs, run.timeline, run.figures.step);
  result->valid = true;
  result->fits = true;
  *drawn = PackRun(run.one, run.timeline, 1);
}

VerifiedSchedule Judged(const std::string& name, const RunForTest& predicted,
                        const RunForTest& measured) {
  VerifiedSchedule verdict = RanForTest(name, 0, 0);
  verdict.predicted = predicted.figures;
  verdict.measured = measured.figures;
  const TimeNs step = measured.figures.step;
  verdict.steps = {step - 1000, step, step + 2000, step + 9000};
  verdict.round_steps = {step, step + 5000};
  for (const PeakMemory& peak : PeaksByRank(measured.one, measured.timeline)) {
    verdict.memory.push_back({.peak = peak, .measured = peak.most, .handed_over = 3 << 20});
  }
  verdict.resident_bytes = verdict.ledger_bytes() * 21 / 20;
  const MostWaiting waiting = MostWaitingOf(predicted.one);
  verdict.waiting_b_predicted = waiting.for_b;
  verdict.waiting_w_predicted = waiting.for_w;
  verdict.waiting_b_measured = waiting.for_b;
  verdict.waiting_w_measured = waiting.for_w;
  verdict.passes = {{.stage = 0, .pass = Pass::kF, .calibrated = 9, .p50 = 10, .p95 = 12}};
  return verdict;
}

}  // namespace

VerifiedSchedule RanForTest(std::string name, TimeNs predicted, TimeNs measured, double spread) {
  VerifiedSchedule schedule;
  schedule.schedule = std::move(name);
  schedule.runs = 3;
  schedule.predicted = {.step = predicted, .idle_share = 0.1};
  schedule.measured = {.step = measured, .idle_share = 0.12};
  schedule.spread = spread;
  schedule.gradients_equal = true;
  return schedule;
}

Verification ThreeForTest() {
  Verification all{.scenario = "three", .ranks = 2, .micro_batches = 4, .transport = "threads"};
  all.tokens_per_step = 1000;
  all.schedules = {RanForTest("1f1b", 1000, 1010), RanForTest("zb-h1", 900, 905),
                   RanForTest("zb-v", 905, 890)};
  return all;
}

std::string PageWithoutDrawings(const Verification& verification) {
  return VerificationPage(
      {.verification = verification,
       .drawings = std::vector<VerificationDrawing>(verification.schedules.size())});
}

VerifiedForTest DrawnForTest() {
  VerifiedForTest page{.verification = ThreeForTest(), .drawings = {}};
  Verification& all = page.verification;
  all.scenario = "4 ranks";
  all.ranks = 4;
  all.micro_batches = 8;
  all.schedules.clear();
  for (const char* name : {"1f1b", "zb-v", "dualpipe"}) {
    const Schedule schedule = FindSchedule(name).Make({.ranks = 4, .micro_batches = 8});
    const RunForTest predicted = RunOf(schedule, 1'000'000);
    const RunForTest measured = RunOf(schedule, 1'020'000);
    all.schedules.push_back(Judged(name, predicted, measured));
    VerificationDrawing& drawing = page.drawings.emplace_back();
    Draw(predicted, std::string(name) + ", predicted", &drawing.predicted, &drawing.predicted_run);
    Draw(measured, std::string(name) + ", measured", &drawing.measured, &drawing.measured_run);
    drawing.predicted_run.waterfall =
        FindWaterfall(schedule, predicted.costs, {.iterations = kPeriodIterations},
                      drawing.predicted.summary->step);
  }
  all.schedules.push_back({.schedule = "gpipe", .reason = "does not fit"});
  all.schedules.push_back({.schedule = "zb-h2", .failures = {"rank 1 died in 1BW3"}});
  for (const char* name : {"gpipe", "zb-h2"}) {
    VerificationDrawing& drawing = page.drawings.emplace_back();
    drawing.predicted.schedule = std::string(name) + ", predicted";
    drawing.measured.schedule = std::string(name) + ", measured";
  }
  return page;
}

}  // namespace spiritlevel
