#include "base/parse_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/base/input_error_of.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

TEST(ParseBytes, ReadsBytesWithAndWithoutUnit) {
  EXPECT_EQ(ParseBytes("8000"), 8000);
  EXPECT_EQ(ParseBytes("8000 B"), 8000);
  EXPECT_EQ(ParseBytes(" 1 "), 1);
  EXPECT_EQ(ParseBytes("6e9"), 6'000'000'000);
  EXPECT_EQ(ParseBytes("60 GiB"), Bytes{60} << 30);
  EXPECT_EQ(ParseBytes("8GiB"), Bytes{8} << 30);
  EXPECT_EQ(ParseBytes("1.5GB"), 1'500'000'000);
  EXPECT_EQ(ParseBytes("3kB"), 3000);
  EXPECT_EQ(ParseBytes("3KiB"), 3072);
  EXPECT_EQ(ParseBytes("2MB"), 2'000'000);
  EXPECT_EQ(ParseBytes("2MiB"), Bytes{2} << 20);
  EXPECT_EQ(ParseBytes("1TB"), 1'000'000'000'000);
  EXPECT_EQ(ParseBytes("1024TiB"), kMaxBytes);
}

TEST(ParseBytes, IsExactForEveryIntegerAndRoundsTheRestHalfUp) {
  EXPECT_EQ(ParseBytes("1125899906842624"), kMaxBytes);
  EXPECT_EQ(ParseBytes("1125899906842623"), kMaxBytes - 1);
  EXPECT_EQ(ParseBytes("1.5"), 2);
  EXPECT_EQ(ParseBytes("0.5"), 1);
  EXPECT_EQ(ParseBytes("1.4"), 1);
  EXPECT_EQ(ParseBytes("0.0005 KiB"), 1);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  const auto error = [](const std::string& text) {
    return InputErrorOf([&] { ParseBytes(text); });
  };
  for (const char* text : {"", "  ", "much", "GiB", "nan", "inf", "-inf", "0x10B", "--5"}) {
    EXPECT_THAT(error(text), testing::AnyOf(HasSubstr("is no size"), HasSubstr("no unit"))) << text;
  }
  // Either of two may be meant.
  for (const char* text : {"8G", "8k", "8 M", "8 gib", "8 GiB GiB", "8,5GiB", "1e"}) {
    EXPECT_THAT(error(text), HasSubstr("no unit of memory")) << text;
  }
  for (const char* text : {"0", "-1", "0.4", "1e16", "1025TiB", "1e300 TiB"}) {
    EXPECT_THAT(error(text), HasSubstr("not between 1 byte and 2^50")) << text;
  }
}

}  // namespace
}  // namespace spiritlevel
