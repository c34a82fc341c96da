// How far training drifts if every step of three in four stages is taken back by arithmetic,
// against the same with snapshots, which bring back every bit: the table of docs/transactions.md,
// which is what this prints.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <vector>

#include "tests/sanitized.h"
#include "tests/sim/run.h"
#include "verify/model_costs.h"
#include "verify/model_work.h"
#include "verify/run.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {
namespace {

constexpr double kRate = 1e-3;

// Eight layers of width 32 on four ranks.
TrainingTask DriftTask(const Schedule& schedule) {
  const cpu::ModelShape shape{.layers = 8,
                              .hidden = 32,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_dim = 8,
                              .intermediate = 64,
                              .vocabulary = 61,
                              .sequence = 16,
                              .seed = 5};
  TrainingTask task{.shape = shape,
                    .stages = cpu::EvenStages(shape, schedule.num_stages()),
                    .micro_batches = schedule.num_micro_batches()};
  task.adamw.rate = static_cast<float>(kRate);
  return task;
}

struct Trained {
  StepRecord last{};  // step's
  double loss = 0;    // with what that has made
  int rolled_back = 0;
};

// Every norm is `over` times the threshold, by one entry of the last stage: the stages before it
// step, are rolled back and step right, each time, whatever the timing. Behind the steps comes one
// that overflows in stage 0, and so is none, lest the last of them be settled without a rollback.
Trained Train(const Schedule& schedule, const TrainingTask& task, UndoBy undo_by, double over,
              int steps) {
  TransactionOptions transaction{.undo_by = undo_by};
  LoweringOptions lowering{.tail = Tail::kSpeculativeValidation, .iterations = steps + 1};
  for (int step = 0; step < steps; ++step) {
    lowering.rejected.push_back(step);
    transaction.faults.push_back({.iteration = step,
                                  .stage = task.num_stages() - 1,
                                  .value = static_cast<float>(over * task.clip_norm)});
  }
  transaction.faults.push_back(
      {.iteration = steps, .value = std::numeric_limits<float>::infinity()});
  std::atomic<int> rolled_back{0};
  transaction.on_rollback = [&](int, int64_t) { rolled_back.fetch_add(1); };
  const Costs costs = ModelCosts(task, {}, {.keeps_snapshot = undo_by == UndoBy::kSnapshot});
  const RunReport report = RunProgram(
      Lower(schedule, costs, lowering),
      ModelWorks(task, {.record = true,
                        .make_tail = TransactionalTails(task, transaction, MakePrefixTable(task))}),
      {.patience = 0});
  if (report.failure) throw std::runtime_error(report.failure->message);
  const TrainingRecord record = RecordOf(task, report.results);
  Trained trained{.last = record.at(static_cast<size_t>(steps) - 1),
                  .rolled_back = rolled_back.load()};
  for (const LossRecord& loss : record.back().losses) trained.loss += loss.sum;
  return trained;
}

struct Drift {
  double differing = 0;  // share of all parameters
  double most = 0;       // in rates
  double relative = 0;   // root mean square of the error by that of the parameters
  double loss = 0;       // relative; at most
};

Drift Measure(const Trained& inverse, const Trained& exact) {
  Drift drift;
  double squared_error = 0;
  double squared = 0;
  int64_t count = 0;
  for (size_t p = 0; p < inverse.last.parameters.size(); ++p) {
    const std::vector<float>& values = inverse.last.parameters[p].value;
    const std::vector<float>& right = exact.last.parameters.at(p).value;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(double{values[i]} - double{right[i]});
      drift.differing += error > 0;
      drift.most = std::max(drift.most, error / kRate);
      squared_error += error * error;
      squared += double{right[i]} * double{right[i]};
      ++count;
    }
  }
  drift.differing /= static_cast<double>(count);
  drift.relative = std::sqrt(squared_error / squared);
  drift.loss = std::abs(inverse.loss - exact.loss) / exact.loss;
  return drift;
}

struct Row {
  double over = 2;  // one by the clip coefficient
  int steps = 1;
  Drift documented{};

  friend void PrintTo(const Row& row, std::ostream* out) {
    *out << row.steps << " steps, " << row.over << " times the threshold";
  }
};

constexpr Row kTable[] = {
    {.over = 2, .steps = 1, .documented = {0.013, 1.2e-4, 8e-9, 1e-8}},
    {.over = 2, .steps = 10, .documented = {0.37, 2.4e-4, 5e-8, 1e-8}},
    {.over = 2, .steps = 100, .documented = {0.74, 2.4e-4, 1.2e-7, 1e-8}},
    {.over = 100, .steps = 10, .documented = {0.97, 3e-3, 2e-6, 2e-7}},
    {.over = 100, .steps = 100, .documented = {0.993, 9e-3, 5e-6, 2e-7}},
};

// Other processors round sums in other orders: of the size that the table has, both ways.
void ExpectAbout(double measured, double documented, const char* what) {
  constexpr double kFactor = 3;
  EXPECT_LE(measured, documented * kFactor) << what;
  EXPECT_GE(measured, documented / kFactor) << what << ": the table claims too much";
}

class InverseDrift : public testing::TestWithParam<Row> {};

TEST_P(InverseDrift, AddsUpAsTheTableSays) {
  const Row& row = GetParam();
  if (kSanitized && row.steps > 10) GTEST_SKIP() << "the same code, for a long time";
  const Schedule schedule = Make("zb-h2", 4, 8);
  TrainingTask task = DriftTask(schedule);
  task.clip_norm = 100;  // far above the norm of all that is not put in
  const Trained exact = Train(schedule, task, UndoBy::kSnapshot, row.over, row.steps);
  const Trained inverse = Train(schedule, task, UndoBy::kInverse, row.over, row.steps);
  EXPECT_EQ(inverse.rolled_back, 3 * row.steps) << "three of four stages, each time";
  EXPECT_EQ(exact.rolled_back, inverse.rolled_back);
  EXPECT_NEAR(inverse.last.clip, 1 / row.over, 0.01 / row.over);
  const Drift drift = Measure(inverse, exact);
  std::cout << row.steps << " steps, clipped to 1/" << row.over << ": " << 100 * drift.differing
            << " % of the parameters differ, by " << drift.most << " rates at most, by "
            << drift.relative << " of their size; the loss by " << drift.loss << "\n";
  ExpectAbout(drift.differing, row.documented.differing, "parameters that differ");
  ExpectAbout(drift.most, row.documented.most, "most, in rates");
  ExpectAbout(drift.relative, row.documented.relative, "root mean square, relative");
  EXPECT_LE(drift.loss, row.documented.loss * 3) << "which goes up and down";
}

INSTANTIATE_TEST_SUITE_P(Table, InverseDrift, testing::ValuesIn(kTable));

}  // namespace
}  // namespace spiritlevel
