#include "base/utf8.h"

#include <gtest/gtest.h>

namespace spiritlevel {
namespace {

TEST(Utf8, TellsWellFormedFromNot) {
  EXPECT_TRUE(IsUtf8("plain, \u00fcml\u00e4ut, \u20ac, \U0001F600"));
  for (const char* bad :
       {"\xff", "\xc3", "a\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(bad));
  }
}

TEST(Utf8, ShownIsOneLineWithoutCommands) {
  EXPECT_EQ(Shown("a\nb\033[31m"), "a?b?[31m");
  EXPECT_EQ(Shown("\u20ac\u20ac\u20ac", 7), "\u20ac\u20ac...");
}

TEST(Utf8, PrintableKeepsLinesAndReplacesWhatIsNoText) {
  EXPECT_EQ(Printable("line 1\n  l\u00efne 2\033[2J"), "line 1\n  l\u00efne 2?[2J");
  EXPECT_EQ(Printable(std::string("\0\x7f\xc2\x9b\xff", 5)), "????");
  EXPECT_EQ(Printable("cut \xe2\x82"), "cut ??");
}

}  // namespace
}  // namespace spiritlevel
