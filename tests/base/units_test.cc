#include "base/units.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "base/check.h"
#include "tests/base/input_error_of.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(DivideHalfUp, RoundsHalvesTowardsPlusInfinity) {
  EXPECT_EQ(DivideHalfUp(5, 2), 3);
  EXPECT_EQ(DivideHalfUp(-5, 2), -2);
  EXPECT_EQ(DivideHalfUp(1, 2), 1);
  EXPECT_EQ(DivideHalfUp(-1, 2), 0);
}

TEST(DivideHalfUp, RoundsToTheNearestOtherwise) {
  EXPECT_EQ(DivideHalfUp(4, 3), 1);
  EXPECT_EQ(DivideHalfUp(5, 3), 2);
  EXPECT_EQ(DivideHalfUp(-4, 3), -1);
  EXPECT_EQ(DivideHalfUp(-5, 3), -2);
  EXPECT_EQ(DivideHalfUp(0, 7), 0);
}

// q is right when it is the largest integer with q b <= a + b / 2, that is 2 q b <= 2 a + b.
TEST(DivideHalfUp, IsTheLargestQuotientNotAboveHalfMoreForEverySmallPair) {
  for (int64_t b = 1; b <= 40; ++b) {
    for (int64_t a = -200; a <= 200; ++a) {
      const int64_t q = DivideHalfUp(a, b);
      EXPECT_LE(2 * q * b, 2 * a + b) << a << " / " << b;
      EXPECT_GT(2 * (q + 1) * b, 2 * a + b) << a << " / " << b;
    }
  }
}

TEST(DivideHalfUp, DoesNotOverflowAtTheExtremes) {
  EXPECT_EQ(DivideHalfUp(kMax, 1), kMax);
  EXPECT_EQ(DivideHalfUp(kMin, 1), kMin);
  EXPECT_EQ(DivideHalfUp(kMax, kMax), 1);
  EXPECT_EQ(DivideHalfUp(kMin, kMax), -1);
  EXPECT_EQ(DivideHalfUp(kMax, 2), kMax / 2 + 1);
  EXPECT_EQ(DivideHalfUp(kMin, 2), kMin / 2);
  EXPECT_EQ(DivideHalfUp(kMax / 2, kMax), 0);
  EXPECT_EQ(DivideHalfUp(kMax / 2 + 1, kMax), 1);
}

static_assert(DivideHalfUp(7, 2) == 4, "usable in constant expressions");

TEST(NanosecondsFromMicroseconds, KeepsWholeMicroseconds) {
  EXPECT_EQ(NanosecondsFromMicroseconds(0), 0);
  EXPECT_EQ(NanosecondsFromMicroseconds(-0.0), 0);
  EXPECT_EQ(NanosecondsFromMicroseconds(1), 1000);
  EXPECT_EQ(NanosecondsFromMicroseconds(18522), 18'522'000);
}

TEST(NanosecondsFromMicroseconds, RoundsHalfANanosecondUp) {
  EXPECT_EQ(NanosecondsFromMicroseconds(0.0005), 1);
  EXPECT_EQ(NanosecondsFromMicroseconds(0.00049), 0);
  EXPECT_EQ(NanosecondsFromMicroseconds(1.0005), 1001);
  EXPECT_EQ(NanosecondsFromMicroseconds(std::numeric_limits<double>::denorm_min()), 0);
}

// Most decimals that end in half a nanosecond have no exact binary form, and about half of them
// come out a hair below: what counts is the decimal that the user wrote.
TEST(NanosecondsFromMicroseconds, RoundsTheDecimalThatWasWrittenUpToAnHour) {
  constexpr unsigned kSeed = 20240229;
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t digits = random() % 52;
    const auto ns = static_cast<TimeNs>((random() >> 12) >> digits) % 3'600'000'000'000;
    const auto microseconds = [&](const char* below_ns) {
      const std::string text = fmt::format("{}.{:03}{}", ns / 1000, ns % 1000, below_ns);
      return std::strtod(text.c_str(), nullptr);
    };
    EXPECT_EQ(NanosecondsFromMicroseconds(microseconds("")), ns) << "seed " << kSeed;
    EXPECT_EQ(NanosecondsFromMicroseconds(microseconds("49")), ns) << "seed " << kSeed;
    EXPECT_EQ(NanosecondsFromMicroseconds(microseconds("5")), ns + 1) << "seed " << kSeed;
  }
}

TEST(NanosecondsFromMicroseconds, RefusesWhatIsNoNumber) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(InputErrorOf([&] { NanosecondsFromMicroseconds(bad); }),
                HasSubstr("not a finite number"));
  }
}

TEST(NanosecondsFromMicroseconds, RefusesNegativeTimesNamingTheNumber) {
  EXPECT_THAT(InputErrorOf([] { NanosecondsFromMicroseconds(-601); }),
              HasSubstr("-601 is negative"));
  EXPECT_THAT(InputErrorOf([] { NanosecondsFromMicroseconds(-1e-300); }), HasSubstr("negative"));
}

TEST(NanosecondsFromMicroseconds, RefusesMoreThanADayAndSaysTheUnit) {
  constexpr double kDay = 86'400e6;
  EXPECT_EQ(NanosecondsFromMicroseconds(kDay), kMaxPassTime);
  for (const double bad : {kDay * 1.000001, 1e30, std::numeric_limits<double>::max()}) {
    const std::string error = InputErrorOf([&] { NanosecondsFromMicroseconds(bad); });
    EXPECT_THAT(error, HasSubstr("longer than a day"));
    EXPECT_THAT(error, HasSubstr("times are in microseconds"));
  }
}

TEST(FormatTime, HasFourDigitsAndTheUnitThatFits) {
  EXPECT_EQ(FormatTime(0), "0 ns");
  EXPECT_EQ(FormatTime(999), "999 ns");
  EXPECT_EQ(FormatTime(1000), "1 us");
  EXPECT_EQ(FormatTime(601'000), "601 us");
  EXPECT_EQ(FormatTime(18'522'000), "18.52 ms");
  EXPECT_EQ(FormatTime(1'456'832'000), "1.457 s");
  EXPECT_EQ(FormatTime(-1'500), "-1.5 us");
}

TEST(FormatTime, TakesTheNextUnitWhereRoundingReachesIt) {
  EXPECT_EQ(FormatTime(999'940), "999.9 us");
  EXPECT_EQ(FormatTime(999'999), "1 ms");
  EXPECT_EQ(FormatTime(999'999'999), "1 s");
  EXPECT_EQ(FormatTime(-999'999'999), "-1 s");
}

TEST(FormatTime, HasNoExponentHoweverLong) {
  EXPECT_EQ(FormatTime(86'400'000'000'000), "86400 s");
  EXPECT_EQ(FormatTime(999'960'000'000), "1000 s");
  EXPECT_EQ(FormatTime(kMax), "9223372037 s");
  EXPECT_EQ(FormatTime(kMin), "-9223372037 s");
}

TEST(FormatBytes, HasFourDigitsAndTheBinaryUnitThatFits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1000), "1000 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1 KiB");
  EXPECT_EQ(FormatBytes(15 * 1024), "15 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(Bytes{3} << 29), "1.5 GiB");
  EXPECT_EQ(FormatBytes(-1536), "-1.5 KiB");
}

TEST(FormatBytes, TakesTheNextUnitWhereRoundingReachesIt) {
  EXPECT_EQ(FormatBytes((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(FormatBytes(1023 * 1024), "1023 KiB");
  EXPECT_EQ(FormatBytes((Bytes{1} << 40) - 1), "1 TiB");
}

TEST(FormatBytes, HasNoExponentHoweverMuch) {
  EXPECT_EQ(FormatBytes(Bytes{1} << 50), "1024 TiB");
  EXPECT_EQ(FormatBytes(kMax), "8388608 TiB");
  EXPECT_EQ(FormatBytes(kMin), "-8388608 TiB");
}

}  // namespace
}  // namespace spiritlevel
