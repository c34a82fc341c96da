#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/check.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/loss.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {
namespace {

TEST(Embedding, CopiesTheRowOfEachToken) {
  std::mt19937 random(6);
  Strided table(11, 5, &random);
  const std::vector<int32_t> tokens = {10, 0, 3, 3};
  Strided x(4, 5, 7.0f);
  cpu::EmbeddingForward(tokens, table.view(), x.view());
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(x.view()(i, j), table.view()(tokens[i], j));
  }
  EXPECT_TRUE(x.GapsAreUntouched());
}

TEST(Embedding, GradientsOfATokenThatOccursTwiceAddUp) {
  std::mt19937 random(6);
  Strided dx(4, 5, &random);
  const std::vector<int32_t> tokens = {10, 0, 3, 3};
  Strided dtable(11, 5, 1.0f);
  cpu::EmbeddingWeightGrad(tokens, dx.view(), dtable.view());
  for (int64_t j = 0; j < 5; ++j) {
    EXPECT_EQ(dtable.view()(10, j), 1 + dx.view()(0, j));
    EXPECT_EQ(dtable.view()(3, j), 1 + dx.view()(2, j) + dx.view()(3, j));
    EXPECT_EQ(dtable.view()(1, j), 1);
  }
  EXPECT_TRUE(dtable.GapsAreUntouched());
}

TEST(Embedding, ATokenOutsideTheVocabularyIsOurFault) {
  Strided table(4, 2, 0.0f);
  Strided x(1, 2, 0.0f);
  for (const int32_t token : {-1, 4}) {
    const std::vector<int32_t> tokens = {token};
    EXPECT_THROW(cpu::EmbeddingForward(tokens, table.view(), x.view()), InvariantError);
    EXPECT_THROW(cpu::EmbeddingWeightGrad(tokens, x.view(), table.view()), InvariantError);
  }
}

// Losses of rows of logits, in float64.
Doubles Losses(const Doubles& logits, const std::vector<int32_t>& targets) {
  const size_t cols = logits.size() / targets.size();
  Doubles losses;
  for (size_t i = 0; i < targets.size(); ++i) {
    double sum = 0;
    for (size_t j = 0; j < cols; ++j) sum += std::exp(logits[i * cols + j]);
    losses.push_back(targets[i] == cpu::kIgnoredTarget
                         ? 0
                         : std::log(sum) - logits[i * cols + static_cast<size_t>(targets[i])]);
  }
  return losses;
}

class CrossEntropy : public testing::TestWithParam<int64_t> {
 protected:
  std::mt19937 random_{8};
  int64_t vocabulary_ = GetParam();
  std::vector<int32_t> targets_ = {0, static_cast<int32_t>(vocabulary_ - 1), cpu::kIgnoredTarget,
                                   static_cast<int32_t>(vocabulary_ / 2)};
  Strided logits_{4, vocabulary_, &random_};
  float scale_ = 0.25f;
  std::vector<float> losses_ = std::vector<float>(4);
};

TEST_P(CrossEntropy, AndItsGradientAreThoseOfFloat64) {
  const Doubles given = logits_.values();
  const auto loss = [&](const Doubles& logits) {
    double sum = 0;
    for (const double one : Losses(logits, targets_)) sum += 0.25 * one;
    return sum;
  };
  std::vector<float> lse(4);
  cpu::CrossEntropyForward(targets_, logits_.view(), losses_.data(), lse.data());
  EXPECT_LT(RelativeError(AsDoubles(losses_), Losses(given, targets_)), 2e-6);
  EXPECT_EQ(logits_.values(), given);
  cpu::CrossEntropyBackward(targets_, lse.data(), scale_, logits_.view());
  EXPECT_LT(RelativeError(logits_.values(), Gradient(loss, given)), 1e-5);
  EXPECT_TRUE(logits_.GapsAreUntouched());
}

TEST_P(CrossEntropy, FusedGivesWhatTheTwoHalvesGive) {
  Strided fused = logits_;
  std::vector<float> lse(4);
  std::vector<float> fused_losses(4);
  cpu::CrossEntropyForward(targets_, logits_.view(), losses_.data(), lse.data());
  cpu::CrossEntropyBackward(targets_, lse.data(), scale_, logits_.view());
  cpu::CrossEntropyFused(targets_, scale_, fused.view(), fused_losses.data());
  EXPECT_LT(RelativeError(fused.values(), logits_.values()), 2e-6);
  EXPECT_LT(RelativeError(AsDoubles(fused_losses), AsDoubles(losses_)), 1e-6);
  EXPECT_TRUE(fused.GapsAreUntouched());
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, CrossEntropy, testing::Values(2, 5, 16, 33, 101));

TEST(CrossEntropyLimits, LargeLogitsDoNotOverflow) {
  Strided logits(1, 3, 0.0f);
  logits.view()(0, 0) = 1e4f;
  logits.view()(0, 1) = 1e4f - 1;
  const std::vector<int32_t> targets = {1};
  float loss = 0;
  float lse = 0;
  cpu::CrossEntropyForward(targets, logits.view(), &loss, &lse);
  EXPECT_NEAR(static_cast<double>(loss), 1 + std::log(1 + std::exp(-1)), 1e-6);
}

TEST(CrossEntropyLimits, ATargetOutsideTheVocabularyIsOurFault) {
  Strided logits(1, 3, 0.0f);
  float loss = 0;
  for (const int32_t target : {-2, 3}) {
    const std::vector<int32_t> targets = {target};
    EXPECT_THROW(cpu::CrossEntropyFused(targets, 1, logits.view(), &loss), InvariantError);
  }
}

}  // namespace
}  // namespace spiritlevel
