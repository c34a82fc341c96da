#include "kernels/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <random>

#include "base/check.h"
#include "kernels/cpu/blas.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {
namespace {

using cpu::AttentionShape;

// The textbook: all scores of a row, then their softmax, in float64.
struct Reference {
  Doubles out;
  Doubles log_sum_exp;  // [heads, sequence]
};

Reference Attend(const AttentionShape& s, const Doubles& q, const Doubles& k, const Doubles& v) {
  const int64_t wide = s.heads * s.head_dim;
  const int64_t narrow = s.kv_heads * s.head_dim;
  const double scale =
      s.scale != 0 ? static_cast<double>(s.scale) : 1 / std::sqrt(static_cast<double>(s.head_dim));
  Reference r{Doubles(q.size()), Doubles(static_cast<size_t>(s.heads * s.sequence))};
  for (int64_t head = 0; head < s.heads; ++head) {
    const int64_t kv = head / (s.heads / s.kv_heads);
    for (int64_t i = 0; i < s.sequence; ++i) {
      const int64_t seen = s.causal ? i + 1 : s.sequence;
      Doubles weights;
      double sum = 0;
      for (int64_t j = 0; j < seen; ++j) {
        double score = 0;
        for (int64_t d = 0; d < s.head_dim; ++d) {
          score += q[i * wide + head * s.head_dim + d] * k[j * narrow + kv * s.head_dim + d];
        }
        weights.push_back(std::exp(scale * score));
        sum += weights.back();
      }
      for (int64_t j = 0; j < seen; ++j) {
        for (int64_t d = 0; d < s.head_dim; ++d) {
          r.out[i * wide + head * s.head_dim + d] +=
              weights[j] / sum * v[j * narrow + kv * s.head_dim + d];
        }
      }
      r.log_sum_exp[head * s.sequence + i] = std::log(sum);
    }
  }
  return r;
}

class AttentionKernels : public testing::TestWithParam<AttentionShape> {
 protected:
  void SetUp() override { cpu::UseOneBlasThread(); }

  void Forward() {
    cpu::AttentionForward(s_, q_.view(), k_.view(), v_.view(), out_.view(), lse_, workspace_);
  }
  void Backward() {
    cpu::AttentionBackward(s_, q_.view(), k_.view(), v_.view(), out_.view(), lse_, dout_.view(),
                           dq_.view(), dk_.view(), dv_.view(), workspace_);
  }
  double Loss(const Doubles& q, const Doubles& k, const Doubles& v) const {
    return Dot(dout_.values(), Attend(s_, q, k, v).out);
  }
  // At some places only: each difference is two whole references.
  template <typename LossOf>
  double WorstGradientError(const Doubles& x, const Doubles& gradient, const LossOf& loss_of) {
    const size_t places = x.size() < 200 ? x.size() : 12;
    constexpr double kStep = 1e-4;
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    double worst = 0;
    Doubles moved = x;
    for (size_t n = 0; n < places; ++n) {
      const size_t i = places == x.size() ? n : random_() % x.size();
      moved[i] = x[i] + kStep;
      const double above = loss_of(moved);
      moved[i] = x[i] - kStep;
      const double below = loss_of(moved);
      moved[i] = x[i];
      worst = std::max(worst, std::abs((above - below) / (2 * kStep) - gradient[i]));
    }
    return worst / largest;
  }

  std::mt19937 random_{17};
  AttentionShape s_ = GetParam();
  int64_t wide_ = s_.heads * s_.head_dim;
  int64_t narrow_ = s_.kv_heads * s_.head_dim;
  Strided q_{s_.sequence, wide_, &random_};
  Strided k_{s_.sequence, narrow_, &random_};
  Strided v_{s_.sequence, narrow_, &random_};
  Strided dout_{s_.sequence, wide_, &random_};
  // Overwritten, whatever they hold.
  Strided out_{s_.sequence, wide_, 7.0f};
  Strided dq_{s_.sequence, wide_, 7.0f};
  Strided dk_{s_.sequence, narrow_, 7.0f};
  Strided dv_{s_.sequence, narrow_, 7.0f};
  std::vector<float> lse_ = std::vector<float>(static_cast<size_t>(s_.heads * s_.sequence));
  std::vector<float> workspace_ =
      std::vector<float>(static_cast<size_t>(cpu::AttentionWorkspace(s_)), NAN);
};

TEST_P(AttentionKernels, ForwardIsTheTextbooksInFloat64) {
  Forward();
  const Reference expected = Attend(s_, q_.values(), k_.values(), v_.values());
  EXPECT_LT(RelativeError(out_.values(), expected.out), 3e-6);
  EXPECT_LT(RelativeError(AsDoubles(lse_), expected.log_sum_exp), 3e-6);
  EXPECT_TRUE(out_.GapsAreUntouched());
}

TEST_P(AttentionKernels, GradientsAreThoseOfFiniteDifferences) {
  Forward();
  Backward();
  const Doubles q = q_.values();
  const Doubles k = k_.values();
  const Doubles v = v_.values();
  EXPECT_LT(WorstGradientError(q, dq_.values(), [&](const Doubles& x) { return Loss(x, k, v); }),
            3e-5);
  EXPECT_LT(WorstGradientError(k, dk_.values(), [&](const Doubles& x) { return Loss(q, x, v); }),
            3e-5);
  EXPECT_LT(WorstGradientError(v, dv_.values(), [&](const Doubles& x) { return Loss(q, k, x); }),
            3e-5);
  EXPECT_TRUE(dq_.GapsAreUntouched() && dk_.GapsAreUntouched() && dv_.GapsAreUntouched());
}

TEST_P(AttentionKernels, RunTwiceGiveTheSameBits) {
  Forward();
  Backward();
  const Doubles dq = dq_.values();
  const Doubles dk = dk_.values();
  Forward();
  Backward();
  EXPECT_EQ(dq_.values(), dq);
  EXPECT_EQ(dk_.values(), dk);
}

// Tiles are 64 by 64: one, exactly one, one and a bit, and several.
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionKernels,
                         testing::Values(AttentionShape{2, 1, 1, 1}, AttentionShape{5, 2, 1, 3},
                                         AttentionShape{7, 4, 2, 3, false},
                                         AttentionShape{9, 3, 3, 4, true, 0.7f},
                                         AttentionShape{64, 2, 2, 8}, AttentionShape{65, 2, 1, 8},
                                         AttentionShape{67, 2, 1, 5, false},
                                         AttentionShape{128, 2, 1, 5},
                                         AttentionShape{290, 2, 2, 8}),
                         [](const testing::TestParamInfo<AttentionShape>& test) {
                           const AttentionShape& s = test.param;
                           return std::to_string(s.sequence) + "x" + std::to_string(s.heads) +
                                  "over" + std::to_string(s.kv_heads) + "x" +
                                  std::to_string(s.head_dim) + (s.causal ? "causal" : "full");
                         });

// exp(80) squared is no float: without the running maximum this would overflow.
TEST(AttentionLimits, LargeScoresDoNotOverflow) {
  const AttentionShape shape{.sequence = 200, .heads = 1, .kv_heads = 1, .head_dim = 4};
  std::mt19937 random(5);
  Strided q(200, 4, &random);
  Strided k(200, 4, &random);
  Strided v(200, 4, &random);
  for (int64_t i = 0; i < 200; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      q.view()(i, j) *= 15;
      k.view()(i, j) *= 15;
    }
  }
  Strided out(200, 4, 0.0f);
  std::vector<float> lse(200);
  std::vector<float> workspace(static_cast<size_t>(cpu::AttentionWorkspace(shape)));
  cpu::AttentionForward(shape, q.view(), k.view(), v.view(), out.view(), lse, workspace);
  // The scores reach some hundreds; float64 exponentials take up to 709.
  const Reference expected = Attend(shape, q.values(), k.values(), v.values());
  EXPECT_LT(RelativeError(out.values(), expected.out), 1e-3);
}

TEST(AttentionLimits, MemoryGrowsWithTheSequenceAndNotItsSquare) {
  const auto floats = [](int64_t sequence) {
    return cpu::AttentionWorkspace(
        {.sequence = sequence, .heads = 8, .kv_heads = 8, .head_dim = 64});
  };
  EXPECT_LT(floats(65'536) - floats(1'024), 65'536);
}

TEST(AttentionLimits, HeadsThatDoNotDivideAreOurFault) {
  const AttentionShape shape{.sequence = 2, .heads = 3, .kv_heads = 2, .head_dim = 1};
  Strided q(2, 3, 0.0f);
  Strided k(2, 2, 0.0f);
  std::vector<float> lse(6);
  std::vector<float> workspace(static_cast<size_t>(cpu::AttentionWorkspace(shape)));
  EXPECT_THROW(cpu::AttentionForward(shape, q.view(), k.view(), k.view(), q.view(), lse, workspace),
               InvariantError);
}

}  // namespace
}  // namespace spiritlevel
