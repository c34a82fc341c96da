#include "base/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spiritlevel {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(InputError, SaysWhatIsWrong) { EXPECT_STREQ(InputError("19 is odd").what(), "19 is odd"); }

TEST(InputError, PutsTheWayOutOnALineOfItsOwn) {
  EXPECT_STREQ(InputError("19 is odd", "use 20").what(), "19 is odd\n    use 20");
}

TEST(InputError, IndentsEveryLineOfTheWayOut) {
  EXPECT_STREQ(InputError("19 is odd", "use 20\nor dualpipe-v\n").what(),
               "19 is odd\n    use 20\n    or dualpipe-v");
}

TEST(InputError, AtPutsPlacesBeforeTheProblemOutermostFirst) {
  const InputError error =
      InputError("19 is odd", "use 20").At("micro_batches").At("my.textproto:12");
  EXPECT_STREQ(error.what(), "my.textproto:12: micro_batches: 19 is odd\n    use 20");
  EXPECT_EQ(error.problem(), "my.textproto:12: micro_batches: 19 is odd");
  EXPECT_EQ(error.way_out(), "use 20");
}

TEST(InputError, AtLeavesTheErrorItIsCalledOnAsItWas) {
  const InputError error("19 is odd");
  EXPECT_STREQ(error.At("micro_batches").what(), "micro_batches: 19 is odd");
  EXPECT_STREQ(error.what(), "19 is odd");
}

std::string FailedInvariant() {
  try {
    SPIRITLEVEL_CHECK(2 + 2 == 5, "busy and stalls sum to the makespan");
  } catch (const InvariantError& error) {
    return error.what();
  }
  return "";
}

TEST(Check, IsSilentWhenTheInvariantHolds) {
  EXPECT_NO_THROW(SPIRITLEVEL_CHECK(2 + 2 == 4, "arithmetic"));
}

TEST(Check, EvaluatesItsConditionOnce) {
  int evaluated = 0;
  SPIRITLEVEL_CHECK(++evaluated > 0, "counts");
  EXPECT_EQ(evaluated, 1);
}

TEST(Check, IsOneStatementAfterAnIf) {
  bool otherwise = false;
  if (otherwise)
    SPIRITLEVEL_CHECK(false, "not reached");
  else
    otherwise = true;
  EXPECT_TRUE(otherwise);
}

TEST(Check, NamesTheInvariantAndTheCondition) {
  EXPECT_THAT(FailedInvariant(), HasSubstr("busy and stalls sum to the makespan"));
  EXPECT_THAT(FailedInvariant(), HasSubstr("2 + 2 == 5"));
}

// Where the program was built is nobody's business.
TEST(Check, NamesTheFileWithoutTheBuildPath) {
  EXPECT_THAT(FailedInvariant(), StartsWith("check_test.cc:"));
  EXPECT_THAT(FailedInvariant(), Not(HasSubstr("/")));
}

TEST(Check, IsNotAnInputError) {
  EXPECT_THROW(SPIRITLEVEL_CHECK(false, "ours"), std::logic_error);
  EXPECT_THROW(throw InputError("the user's"), std::runtime_error);
}

}  // namespace
}  // namespace spiritlevel
