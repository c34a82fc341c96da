#include "report/text.h"

#include <gtest/gtest.h>

#include "report/grid.h"

namespace spiritlevel {
namespace {

TEST(Text, WrapsAtSpacesAndIndentsWhatFollows) {
  EXPECT_EQ(Wrap("one two three four", 2, 10), "one two\n  three\n  four");
  EXPECT_EQ(Wrap("", 2, 10), "");
  EXPECT_EQ(Wrap("a\nb", 2, 10), "a\n  b");
}

TEST(Text, AWordLongerThanTheLineIsNotTorn) {
  EXPECT_EQ(Wrap("a bbbbbbbbbbbb c", 0, 5), "a\nbbbbbbbbbbbb\nc");
}

TEST(Text, KeepsIndentationOfPictures) { EXPECT_EQ(Wrap("x:\n  y", 2, 20), "x:\n    y"); }

TEST(Text, AProblemAndItsWayOutAreOneParagraph) {
  EXPECT_EQ(OneParagraph("no\n    use 4"), "no; use 4");
  EXPECT_EQ(OneParagraph("deadlock:\n  rank 0\n  rank 1\n"), "deadlock:\n  rank 0\n  rank 1");
}

TEST(Text, PercentagesHaveNoNegativeZero) {
  EXPECT_EQ(Percent(0.30435), "30.4 %");
  EXPECT_EQ(PercentNumber(-1e-9), "0.0");
}

TEST(Text, SmallMemoryIsExactAndLargeMemoryIsBinary) {
  EXPECT_EQ(FormatMemory(16000), "16000 B");
  EXPECT_EQ(FormatMemory(Bytes{80} << 30), "80 GiB");
}

TEST(Scale, GivesFourDigitsOfTheLargest) {
  const Scale seconds = Scale::ForTimes(1'457'000'000);
  EXPECT_EQ(seconds.unit(), "s");
  EXPECT_EQ(seconds.Number(1'457'000'000), "1.457");
  EXPECT_EQ(seconds.Number(999'000'000), "0.999");
  const Scale units = Scale::ForTimes(69);
  EXPECT_EQ(units.Number(69) + " " + units.unit(), "69 ns");
  const Scale gib = Scale::ForMemory(Bytes{80} << 30);
  EXPECT_EQ(gib.Number(Bytes{80} << 30) + " " + gib.unit(), "80.00 GiB");
  EXPECT_EQ(Scale::ForMemory(0).Number(0), "0");
}

TEST(Grid, GroupsSpanTheirColumns) {
  Grid grid;
  grid.Add({.name = "who", .left = true, .cells = {"a", "bb"}});
  grid.Add({.group = "times", .name = "first", .cells = {"1", "2"}});
  grid.Add({.group = "times", .name = "second", .cells = {"10", "20"}});
  EXPECT_EQ(grid.ToString(),
            "     --- times ---\n"
            "who  first  second\n"
            "a        1      10\n"
            "bb       2      20\n");
}

TEST(Grid, AReplacedRowKeepsItsFirstColumn) {
  Grid grid;
  grid.Add({.name = "who", .left = true, .cells = {"a", "bb"}});
  grid.Add({.name = "n", .cells = {"1", "2"}});
  grid.ReplaceRow(1, "cannot");
  EXPECT_EQ(grid.ToString(),
            "who  n\n"
            "a    1\n"
            "bb   cannot\n");
}

}  // namespace
}  // namespace spiritlevel
