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

// A fit set for one primitive is read back for it, and for no other.
TEST(Primitives, EachHasAFitOfItsOwn) {
  const SizeFit line{.line = {.base_ns = 3, .per_unit_ns = 4}};
  const SizeFit curve{.curve = {{{5, 6}}}};
  for (const PrimitiveInfo& info : Primitives()) {
    EXPECT_TRUE(MayBeLine(info.primitive) || MayBeCurve(info.primitive)) << info.name;
    for (const SizeFit& fit : {line, curve}) {
      if (!(fit.is_curve() ? MayBeCurve(info.primitive) : MayBeLine(info.primitive))) continue;
      DeviceProfile profile;
      SetFit(&profile, info.primitive, fit);
      for (const PrimitiveInfo& other : Primitives()) {
        EXPECT_EQ(FitOf(profile, other.primitive) == fit, &other == &info)
            << info.name << " " << other.name;
      }
    }
  }
}

// Narrow and wide rows in small and large numbers: one that stands for the other would hide which
// of the two a rate follows.
TEST(Plan, RowsAndWidthsOfNormsAreNotTiedToEachOther) {
  std::set<bool> wide_and_few;
  std::set<bool> narrow_and_many;
  for (const PlannedWork& work : MakePlan(/*quick=*/false, 4)) {
    if (work.primitive != Primitive::kNormInputGrad) continue;
    const Norm norm = std::get<Norm>(std::get<Kernel>(work.work));
    EXPECT_EQ(work.rows, norm.rows);
    EXPECT_EQ(work.units * static_cast<double>(work.rows), static_cast<double>(BytesMoved(norm)));
    if (norm.width >= 2'048 && norm.rows <= 320) wide_and_few.insert(work.held_out);
    if (norm.width <= 640 && norm.rows >= 1'024) narrow_and_many.insert(work.held_out);
  }
  EXPECT_EQ(wide_and_few.size(), 2u);
  EXPECT_EQ(narrow_and_many.size(), 2u);
}

}  // namespace
}  // namespace spiritlevel
