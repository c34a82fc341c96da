#include "calibrate/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace spiritlevel {
namespace {

TEST(Plan, NoHeldOutShapeIsAlsoFitted) {
  std::map<std::string, bool> held_out;
  for (const PlannedWork& work : MakePlan(/*quick=*/false, 4)) {
    const std::string key = std::string(InfoOf(work.primitive).name) + " " + work.what;
    EXPECT_TRUE(held_out.emplace(key, work.held_out).second) << key << " is there twice";
  }
}

// A profile can be made after any round: two sizes are a fit, three are a check of it too.
TEST(Plan, TheFirstRoundHasTwoSizesOfEveryPrimitive) {
  std::map<Primitive, std::set<double>> sizes;
  for (const PlannedWork& work : MakePlan(/*quick=*/true, 4)) {
    if (work.round == 0) {
      EXPECT_FALSE(work.held_out) << work.what;
      sizes[work.primitive].insert(work.units);
    }
  }
  for (const PrimitiveInfo& info : Primitives()) {
    EXPECT_GE(sizes[info.primitive].size(), 2u) << info.name;
  }
}

TEST(Plan, EveryPrimitiveIsJudgedByShapesItsFitHasNotSeen) {
  for (const bool quick : {true, false}) {
    std::map<Primitive, int> held_out;
    for (const PlannedWork& work : MakePlan(quick, 4)) held_out[work.primitive] += work.held_out;
    for (const PrimitiveInfo& info : Primitives()) {
      EXPECT_GE(held_out[info.primitive], 2) << info.name << (quick ? " quick" : "");
    }
  }
}

TEST(Plan, RoundsComeInOrderSoThatItCanBeCutOff) {
  int before = 0;
  for (const PlannedWork& work : MakePlan(/*quick=*/false, 4)) {
    EXPECT_GE(work.round, before);
    before = work.round;
    EXPECT_GT(work.units, 0) << work.what;
  }
}

TEST(Primitives, HaveNamesByWhichTheyAreFound) {
  for (const PrimitiveInfo& info : Primitives()) {
    EXPECT_EQ(FindPrimitive(info.name), &InfoOf(info.primitive));
    EXPECT_FALSE(info.contains.empty());
  }
  EXPECT_EQ(FindPrimitive("gemm"), nullptr);
}

// A line set for one primitive is read back for it, and for no other.
TEST(Primitives, EachHasALineOfItsOwn) {
  for (const PrimitiveInfo& info : Primitives()) {
    if (HasCurve(info.primitive)) continue;
    DeviceProfile profile;
    SetLine(&profile, info.primitive, {.base_ns = 3, .per_unit_ns = 4});
    for (const PrimitiveInfo& other : Primitives()) {
      if (HasCurve(other.primitive)) continue;
      EXPECT_EQ(LineOf(profile, other.primitive).base_ns == 3, &other == &info)
          << info.name << " " << other.name;
    }
  }
}

}  // namespace
}  // namespace spiritlevel
