#include "kernels/cuda/attention_host.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/blas.h"
#include "tests/kernels/cuda/attention_problem.h"

namespace spiritlevel::cuda {
namespace {

// Of one sequence in fp32.
cpu::Matrix MatrixOf(const View& view) {
  return {static_cast<float*>(view.data), view.rows, view.cols, view.stride};
}
void RunOnCpu(AttentionProblem* problem, const AttentionShape& s) {
  cpu::UseOneBlasThread();
  const AttentionBackward call = problem->Backward();
  const cpu::AttentionShape shape{s.sequence, s.heads, s.kv_heads, s.head_dim, s.causal, s.scale};
  std::vector<float> workspace(static_cast<size_t>(cpu::AttentionWorkspace(shape)));
  std::vector<float> sums(static_cast<size_t>(s.heads * s.sequence));
  cpu::AttentionForward(shape, MatrixOf(call.q), MatrixOf(call.k), MatrixOf(call.v),
                        MatrixOf(call.out), sums, workspace);
  cpu::AttentionBackward(shape, MatrixOf(call.q), MatrixOf(call.k), MatrixOf(call.v),
                         MatrixOf(call.out), sums, MatrixOf(call.dout), MatrixOf(call.dq),
                         MatrixOf(call.dk), MatrixOf(call.dv), workspace);
  for (int64_t head = 0; head < s.heads; ++head) {
    std::copy_n(sums.begin() + head * s.sequence, s.sequence, MatrixOf(call.log_sum_exp).row(head));
  }
}

void RunOnTheHost(AttentionProblem* problem) {
  RunAttentionOnHost(problem->Forward());
  RunAttentionOnHost(problem->Backward());
}

class AttentionOnHost : public testing::TestWithParam<AttentionCase> {};

// bf16 results and weights have 8 bits, and errors of some of them meet in a sum.
double Tolerance(ElementType type) { return type == ElementType::kBFloat16 ? 1.2e-2 : 5e-6; }

TEST_P(AttentionOnHost, IsTheTextbooksInFloat64) {
  AttentionProblem problem(GetParam());
  RunOnTheHost(&problem);
  EXPECT_LT(WorstError(problem.Results(), problem.InFloat64()), Tolerance(GetParam().type));
  EXPECT_TRUE(problem.OnlyResultsAreWritten());
}

TEST_P(AttentionOnHost, RunTwiceGivesTheSameBits) {
  AttentionProblem first(GetParam());
  AttentionProblem second(GetParam());
  RunOnTheHost(&first);
  RunOnTheHost(&second);
  RunOnTheHost(&second);  // and whatever was there before
  EXPECT_EQ(first.memory(), second.memory());
}

// Below, at and beyond the ends of tiles of 16, 32, 64 and 128.
std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    for (const bool causal : {true, false}) {
      for (const int64_t sequence : {1, 3, 63, 65, 257}) {
        cases.push_back({.shape = {1, sequence, 2, 1, 16, causal}, .type = type});
      }
      cases.push_back({.shape = {2, 65, 4, 2, 64, causal}, .type = type});
      cases.push_back({.shape = {3, 33, 3, 3, 80, causal, 0.3f}, .type = type});
      cases.push_back({.shape = {1, 130, 6, 2, 128, causal}, .type = type});
      cases.push_back({.shape = {1, 70, 2, 1, 256, causal}, .type = type});
      cases.push_back({.shape = {2, 40, 2, 1, 5, causal}, .type = type, .gap = 3});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOnHost, testing::ValuesIn(Cases()),
                         [](const auto& test) { return NameOf(test.param); });

TEST(AttentionOnHostAndCpu, AgreeOnOneSequenceInFp32) {
  for (AttentionCase c : Cases()) {
    if (c.type != ElementType::kFloat32) continue;
    c.shape.batch = 1;  // the other's have no more
    AttentionProblem problem(c);
    AttentionProblem other(c);
    RunOnTheHost(&problem);
    RunOnCpu(&other, c.shape);
    EXPECT_LT(WorstError(problem.Results(), other.Results()), 5e-6) << NameOf(c);
  }
}

// exp(80) squared is no float: without the running maximum this would overflow.
TEST(AttentionOnHostLimits, LargeScoresDoNotOverflow) {
  for (const bool causal : {true, false}) {
    AttentionProblem problem({.shape = {1, 200, 1, 1, 4, causal}, .size = 15});
    RunOnTheHost(&problem);
    EXPECT_LT(WorstError(problem.Results(), problem.InFloat64()), 1e-3);
  }
}

TEST(AttentionOnHostLimits, WorkspaceGrowsWithTheSequenceAndNotItsSquare) {
  const auto bytes = [](int64_t sequence) {
    return AttentionWorkspace({2, sequence, 8, 8, 64, true, 0});
  };
  EXPECT_EQ(bytes(1'024), 2 * 8 * 1'024 * 4);
  EXPECT_EQ(bytes(65'536), 64 * bytes(1'024));
}

TEST(AttentionOnHostLimits, HeadsOfMoreColumnsThanATileHasAreRefused) {
  AttentionProblem problem({.shape = {1, 2, 1, 1, 257, true}});
  EXPECT_THROW(RunAttentionOnHost(problem.Forward()), InvariantError);
}

}  // namespace
}  // namespace spiritlevel::cuda
