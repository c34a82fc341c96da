// The small parts of the model: random words, dropout, rotation, bf16, routing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/model/bfloat16.h"
#include "kernels/cpu/model/dropout.h"
#include "kernels/cpu/model/philox.h"
#include "kernels/cpu/model/rotation.h"
#include "kernels/cpu/model/routing.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {
namespace {

using cpu::DropoutSite;
using cpu::Matrix;
using cpu::PhiloxCounter;
using testing::ElementsAre;

// The known answers that the authors publish with their code (kat_vectors).
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(cpu::Philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(cpu::Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(cpu::Philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (PhiloxCounter{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

std::vector<float> Dropped(double probability, const DropoutSite& site, int64_t rows,
                           int64_t cols) {
  std::vector<float> ones(static_cast<size_t>(rows * cols), 1.0f);
  cpu::ApplyDropout(probability, site, Matrix(ones.data(), rows, cols));
  return ones;
}

constexpr DropoutSite kSite{.seed = 0x123456789ABCDEF,
                            .iteration = 5,
                            .micro_batch = 6,
                            .layer = 7,
                            .place = DropoutSite::Place::kMlp};

TEST(Dropout, HasTheMaskThatPhiloxGivesWordByWord) {
  const std::vector<float> values = Dropped(0.3, kSite, 13, 17);
  for (size_t i = 0; i < values.size(); ++i) {
    const PhiloxCounter words =
        cpu::Philox({static_cast<uint32_t>(i / 4), 4 * 7 + 2, 6, 5}, cpu::KeyOf(kSite.seed));
    const float expected = words[i % 4] < 0.3 * 0x1p32 ? 0.0f : static_cast<float>(1 / 0.7);
    EXPECT_EQ(values[i], expected) << i;
  }
}

// The number of zeros is binomial; six deviations are one miss in 5 10^8.
TEST(Dropout, DropsAsManyAsItsProbabilitySays) {
  constexpr int64_t kSize = 1 << 18;
  for (const double p : {0.0, 0.01, 0.1, 0.5, 0.9}) {
    int64_t zeros = 0;
    for (const float value : Dropped(p, kSite, 512, kSize / 512)) zeros += value == 0;
    EXPECT_NEAR(static_cast<double>(zeros), p * kSize, 6 * std::sqrt(p * (1 - p) * kSize)) << p;
  }
}

TEST(Dropout, HasAnotherMaskForEveryPartOfItsSite) {
  const std::vector<float> mask = Dropped(0.5, kSite, 8, 16);
  EXPECT_EQ(Dropped(0.5, kSite, 8, 16), mask);
  std::vector<DropoutSite> others(5, kSite);
  others[0].seed += uint64_t{1} << 32;
  ++others[1].iteration;
  ++others[2].micro_batch;
  ++others[3].layer;
  others[4].place = DropoutSite::Place::kAttention;
  for (const DropoutSite& other : others) EXPECT_NE(Dropped(0.5, other, 8, 16), mask);
}

TEST(Rotation, TurnsPairsAndTurnsThemBack) {
  constexpr int64_t kSequence = 5;
  constexpr int64_t kHeadDim = 6;
  std::vector<float> room(2 * kSequence * kHeadDim / 2);
  const Matrix table(room.data(), 2 * kSequence, kHeadDim / 2);
  cpu::FillRotation(100, table);
  std::mt19937 random(8);
  Strided x(2 * kSequence, 2 * kHeadDim, &random);
  const Doubles before = x.values();
  cpu::Rotate(table, kHeadDim, cpu::Turn::kForward, x.view());
  const Doubles turned = x.values();
  for (int64_t row = 0; row < 2 * kSequence; ++row) {
    for (int64_t col = 0; col < 2 * kHeadDim; ++col) {
      const int64_t i = col % kHeadDim;
      const bool first = i < kHeadDim / 2;
      const double angle =
          static_cast<double>(row % kSequence) * std::pow(100.0, -static_cast<double>(i % 3) / 3);
      const double self = before[static_cast<size_t>(row * 2 * kHeadDim + col)];
      const double other = before[static_cast<size_t>(row * 2 * kHeadDim + col + (first ? 3 : -3))];
      EXPECT_NEAR(turned[static_cast<size_t>(row * 2 * kHeadDim + col)],
                  self * std::cos(angle) + (first ? -other : other) * std::sin(angle), 1e-6);
    }
  }
  cpu::Rotate(table, kHeadDim, cpu::Turn::kBack, x.view());
  EXPECT_LT(RelativeError(x.values(), before), 1e-6);
  EXPECT_TRUE(x.GapsAreUntouched());
}

// A rotation's gradient is the rotation back: <R x, y> = <x, R^T y>.
TEST(Rotation, BackIsItsTranspose) {
  std::vector<float> room(2 * 4 * 4);
  const Matrix table(room.data(), 2 * 4, 4);
  cpu::FillRotation(10'000, table);
  std::mt19937 random(9);
  Strided x(4, 8, &random);
  Strided y(4, 8, &random);
  Strided rx = x;
  Strided ty = y;
  cpu::Rotate(table, 8, cpu::Turn::kForward, rx.view());
  cpu::Rotate(table, 8, cpu::Turn::kBack, ty.view());
  EXPECT_NEAR(Dot(rx.values(), y.values()), Dot(x.values(), ty.values()), 1e-6);
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(cpu::Widen(cpu::Round(1.0f)), 1.0f);
  EXPECT_EQ(cpu::Widen(cpu::Round(-3.140625f)), -3.140625f);
  EXPECT_EQ(cpu::Round(std::bit_cast<float>(0x3F808000)), 0x3F80);  // half way, to even: down
  EXPECT_EQ(cpu::Round(std::bit_cast<float>(0x3F818000)), 0x3F82);  // half way, to even: up
  EXPECT_EQ(cpu::Round(std::bit_cast<float>(0x3F808001)), 0x3F81);
  EXPECT_EQ(cpu::Round(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_EQ(cpu::Round(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(cpu::Widen(cpu::Round(std::bit_cast<float>(0x7F800001)))));
}

TEST(Bf16, LosesAtMostHalfOfItsLastBit) {
  std::mt19937 random(10);
  std::uniform_real_distribution<float> between(-100, 100);
  for (int i = 0; i < 1000; ++i) {
    const float value = between(random);
    EXPECT_LE(std::abs(cpu::Widen(cpu::Round(value)) - value), std::abs(value) * 0x1p-8f);
  }
}

TEST(Bf16, OfManyIsThatOfOne) {
  std::mt19937 random(11);
  const std::vector<float> values = Floats(RandomDoubles(101, &random));
  std::vector<uint16_t> halves(values.size());
  std::vector<float> wide(values.size());
  cpu::Round(values, halves);
  cpu::Widen(halves, wide);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(halves[i], cpu::Round(values[i]));
    EXPECT_EQ(wide[i], cpu::Widen(halves[i]));
  }
}

struct Slots {
  std::vector<int32_t> tokens;
  std::vector<int32_t> filled;
};

Slots Fill(std::vector<float> probabilities, int64_t experts, int64_t top_k, int64_t capacity) {
  const auto rows = static_cast<int64_t>(probabilities.size()) / experts;
  Slots slots{std::vector<int32_t>(static_cast<size_t>(experts * capacity)),
              std::vector<int32_t>(static_cast<size_t>(experts))};
  cpu::FillSlots(Matrix(probabilities.data(), rows, experts), top_k, capacity, slots.tokens,
                 slots.filled);
  return slots;
}

// Tokens 0, 1 and 3 like expert 0 best, token 2 expert 1.
TEST(Routing, FirstChoicesGoBeforeSecondOnesAndTokensInOrder) {
  const std::vector<float> probabilities = {0.6f, 0.3f, 0.1f,   //
                                            0.5f, 0.1f, 0.4f,   //
                                            0.2f, 0.7f, 0.1f,   //
                                            0.8f, 0.1f, 0.1f};  // a tie for the second place
  const Slots roomy = Fill(probabilities, 3, 2, 4);
  EXPECT_THAT(roomy.filled, ElementsAre(4, 3, 1));
  EXPECT_THAT(roomy.tokens, ElementsAre(0, 1, 3, 2, 2, 0, 3, -1, 1, -1, -1, -1));
  const Slots tight = Fill(probabilities, 3, 2, 2);
  EXPECT_THAT(tight.filled, ElementsAre(2, 2, 1));
  EXPECT_THAT(tight.tokens, ElementsAre(0, 1, 2, 0, 1, -1));
}

TEST(Routing, OfNotANumberStaysWithinItsBounds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Slots slots = Fill({nan, nan, nan, nan, 0.5f, nan}, 2, 2, 3);
  for (const int32_t filled : slots.filled) EXPECT_LE(filled, 3);
  for (const int32_t token : slots.tokens) EXPECT_LE(token, 2);
}

TEST(Softmax, AndItsGradientAreThoseOfFloat64) {
  std::mt19937 random(12);
  Strided x(4, 5, &random);
  Strided grad(4, 5, &random);
  const Doubles logits = x.values();
  const Doubles dy = grad.values();
  const auto forward = [](const Doubles& v) {
    Doubles y = v;
    for (size_t row = 0; row < 4; ++row) {
      double sum = 0;
      for (size_t j = 0; j < 5; ++j) sum += std::exp(v[row * 5 + j]);
      for (size_t j = 0; j < 5; ++j) y[row * 5 + j] = std::exp(v[row * 5 + j]) / sum;
    }
    return y;
  };
  cpu::SoftmaxRows(x.view());
  cpu::SoftmaxRowsInputGrad(x.view(), grad.view());
  EXPECT_LT(RelativeError(x.values(), forward(logits)), 1e-6);
  EXPECT_LT(RelativeError(grad.values(),
                          Gradient([&](const Doubles& v) { return Dot(dy, forward(v)); }, logits)),
            2e-6);
}

}  // namespace
}  // namespace spiritlevel
