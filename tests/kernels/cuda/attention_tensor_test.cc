// The kernels for tensor cores, run by emulated warps.
#include <gtest/gtest.h>

#include "kernels/cuda/attention_host.h"
#include "kernels/cuda/math/attention_plain.h"
#include "kernels/cuda/math/attention_tensor_backward.h"
#include "kernels/cuda/math/attention_tensor_forward.h"
#include "tests/kernels/cuda/attention_problem.h"
#include "tests/kernels/cuda/emulated_warps.h"

namespace spiritlevel::cuda {
namespace {

// As attention_forward.cu and attention_backward_*.cu launch them.
int64_t Forward(const AttentionForward& call, CopyTime copy_time) {
  const auto arguments = ArgumentsOf<BFloat16>(call);
  int64_t conflicts = 0;
  WithTensorDimension(call.shape.head_dim, [&](auto dimension) {
    using Kernel = TensorForward<decltype(dimension)::value>;
    conflicts = RunEmulated(Kernel{arguments}, TilesIn(arguments.g.sequence, Kernel::kQueries),
                            arguments.g.heads, arguments.g.batch, copy_time);
  });
  return conflicts;
}
int64_t Backward(const AttentionBackward& call, CopyTime copy_time) {
  const auto arguments = ArgumentsOf<BFloat16>(call);
  RunPlain(RowDots<BFloat16>{arguments}, HostGrid());
  int64_t conflicts = 0;
  WithTensorDimension(call.shape.head_dim, [&](auto dimension) {
    using Keys = TensorBackwardKeys<decltype(dimension)::value>;
    using Queries = TensorBackwardQueries<decltype(dimension)::value>;
    conflicts +=
        RunEmulated(Keys{arguments}, TilesIn(arguments.g.sequence, Keys::kKeys) * Keys::kSlices,
                    arguments.g.kv_heads, arguments.g.batch, copy_time);
    conflicts += RunEmulated(Queries{arguments}, TilesIn(arguments.g.sequence, Queries::kQueries),
                             arguments.g.heads, arguments.g.batch, copy_time);
  });
  return conflicts;
}

// The pipeline of copies is the same for heads of any length, and emulation is slow.
std::vector<CopyTime> CopyTimes(const AttentionCase& c) {
  if (c.shape.head_dim > 64) return {CopyTime::kWhenAwaited};
  return {CopyTime::kAtOnce, CopyTime::kWhenAwaited};
}

class TensorKernels : public testing::TestWithParam<AttentionCase> {};

TEST_P(TensorKernels, AreTheTextbooksInFloat64AndTheHostsToRounding) {
  for (const CopyTime copy_time : CopyTimes(GetParam())) {
    AttentionProblem problem(GetParam());
    ASSERT_TRUE(FitsTensorCores(problem.Backward()));
    EXPECT_EQ(Forward(problem.Forward(), copy_time), 0) << "no accesses meet in a bank";
    EXPECT_EQ(Backward(problem.Backward(), copy_time), 0) << "no accesses meet in a bank";
    EXPECT_LT(WorstError(problem.Results(), problem.InFloat64()), 1.2e-2);
    EXPECT_TRUE(problem.OnlyResultsAreWritten());
    AttentionProblem host(GetParam());
    RunAttentionOnHost(host.Forward());
    RunAttentionOnHost(host.Backward());
    EXPECT_LT(WorstError(problem.Results(), host.Results()), 8e-3) << "two bits of bf16";
  }
}

std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases;
  const auto add = [&](const AttentionShape& shape) {
    cases.push_back({.shape = shape, .type = ElementType::kBFloat16});
  };
  for (const bool causal : {true, false}) {
    for (const int64_t sequence : {1, 3, 63, 65, 257}) add({1, sequence, 1, 1, 64, causal});
    add({1, 70, 1, 1, 8, causal, 0.4f});
    add({1, 130, 1, 1, 96, causal});
    add({1, 130, 1, 1, 128, causal});
  }
  add({2, 65, 4, 2, 64, true});
  add({1, 100, 1, 1, 80, true});
  for (const bool causal : {true, false}) {
    add({1, 70, 1, 1, 256, causal});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, TensorKernels, testing::ValuesIn(Cases()),
                         [](const auto& test) { return NameOf(test.param); });

TEST(TensorKernelsLimits, LargeScoresDoNotOverflow) {
  AttentionProblem problem(
      {.shape = {1, 200, 1, 1, 8, true}, .type = ElementType::kBFloat16, .size = 10});
  Forward(problem.Forward(), CopyTime::kWhenAwaited);
  Backward(problem.Backward(), CopyTime::kWhenAwaited);
  EXPECT_LT(WorstError(problem.Results(), problem.InFloat64()), 3e-2);
}

TEST(TensorKernelsLimits, OddRowsAndOtherTypesAreLeftToPlainArithmetic) {
  const auto fits = [](const AttentionCase& c) {
    AttentionProblem problem(c);
    return FitsTensorCores(problem.Forward());
  };
  AttentionCase c{.shape = {1, 4, 2, 1, 64, true}, .type = ElementType::kBFloat16};
  EXPECT_TRUE(fits(c));
  c.gap = 4;
  EXPECT_FALSE(fits(c)) << "rows do not begin at 16 bytes";
  c.gap = 8;
  c.shape.head_dim = 12;
  EXPECT_FALSE(fits(c)) << "heads do not";
  c.shape.head_dim = 64;
  c.type = ElementType::kFloat32;
  EXPECT_FALSE(fits(c));
}

// That of the architecture which has the least, of those that are compiled for.
TEST(TensorKernelsLimits, SharedMemoryIsNoMoreThanSm80Has) {
  for (const int64_t head_dim : {64, 80, 96, 128, 256}) {
    WithTensorDimension(head_dim, [](auto dimension) {
      constexpr int kDim = decltype(dimension)::value;
      EXPECT_LE(TensorForward<kDim>::kSharedBytes, 163u << 10) << kDim;
      EXPECT_LE(TensorBackwardQueries<kDim>::kSharedBytes, 163u << 10) << kDim;
      EXPECT_LE(TensorBackwardKeys<kDim>::kSharedBytes, 163u << 10) << kDim;
    });
  }
}

// --- The emulation finds what it is there to find.

TEST(EmulatedWarps, ACopyThatIsNotAwaitedIsNotThere) {
  EmulatedBlock block(32, 512, CopyTime::kWhenAwaited);
  alignas(16) BFloat16 from[8] = {{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}};
  uint32_t before = 0;
  uint32_t after = 0;
  block.Run([&](const EmulatedMachine& m) {
    if (m.lane() != 0) return;
    m.CopyLater(0, from, true);
    m.CommitCopies();
    m.AwaitCopies<1>();
    before = m.Load(0).words[0];
    m.AwaitCopies<0>();
    after = m.Load(0).words[0];
  });
  EXPECT_EQ(before, 0xFFFFFFFFu);
  EXPECT_EQ(after, 0x00020001u);
}

TEST(EmulatedWarps, LanesThatPartAreFound) {
  EmulatedBlock block(32, 512, CopyTime::kAtOnce);
  EXPECT_THROW(block.Run([](const EmulatedMachine& m) {
    if (m.lane() == 3) m.SyncWarp();
  }),
               InvariantError);
  EXPECT_THROW(block.Run([](const EmulatedMachine& m) { m.Load(512); }), InvariantError);
}

}  // namespace
}  // namespace spiritlevel::cuda
