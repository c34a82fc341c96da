#include "kernels/cuda/host_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/kernels/cuda/cpu_results.h"
#include "tests/kernels/cuda/examples.h"

namespace spiritlevel {
namespace {

using cuda::ElementType;

std::vector<ExampleShape> Shapes() {
  std::vector<ExampleShape> shapes;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    // Gaps of 8 leave groups of 8 where one access reads them, gaps of 3 do not. 1025 columns have
    // more groups than a warp has lanes, and one element behind them.
    for (const int64_t gap : {0, 3, 8}) {
      shapes.push_back({type, 1, 1, gap});
      shapes.push_back({type, 3, 3, gap});
      shapes.push_back({type, 33, 16, gap});
      shapes.push_back({type, 5, 33, gap});
      shapes.push_back({type, 2, 1025, gap});
    }
    // Several tiles of rows; more columns than a block has lanes for; several blocks.
    shapes.push_back({type, 2113, 9, 0});
    shapes.push_back({type, 3, 5000, 8});
  }
  return shapes;
}

// The same arithmetic in the same order: no digit may differ.
bool IsExact(std::string_view kind) {
  static const auto* const kinds = new std::set<std::string_view>{"fill",
                                                                  "convert",
                                                                  "add",
                                                                  "add_bias",
                                                                  "dropout",
                                                                  "embedding_forward",
                                                                  "embedding_weight_grad"};
  return kinds->contains(kind);
}

double Largest(const Doubles& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// How large the terms are of which results are the differences; 0 where there is no difference. The
// input gradient of a norm over one column is nothing but what two equal terms leave.
double LargestTerm(const Example& example) {
  if (!NameOf(example.call()).ends_with("norm_input_grad")) return 0;
  return Largest(example.values("statistics")) * Largest(example.values("weight")) *
         Largest(example.values("dy"));
}

// What a view stores may be off by: half of its last digit, and what sums in another order cost,
// which on the CPU, as a compiler likes it, may be one number after the other.
void ExpectClose(const Doubles& actual, const Doubles& expected, ElementType type, double terms) {
  ASSERT_EQ(actual.size(), expected.size());
  const double largest = std::max(terms, Largest(expected));
  const double rounding = type == ElementType::kBFloat16 ? 0x1p-8 : 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double bound = rounding * std::abs(expected[i]) + 1e-5 * largest;
    ASSERT_LE(std::abs(actual[i] - expected[i]), bound) << "element " << i << ": " << expected[i];
  }
}

// As a view of this type stores them.
Doubles Rounded(const Doubles& values, ElementType type) {
  std::vector<double> memory(values.size() + 1);
  const cuda::View view = cuda::Dense(memory.data(), type, 1, static_cast<int64_t>(values.size()));
  SetValues(view, values);
  return ValuesOf(view);
}

class EveryKernel : public testing::TestWithParam<std::string> {};

TEST_P(EveryKernel, DoesOnTheHostWhatTheCpuKernelDoes) {
  for (const ExampleShape& shape : Shapes()) {
    SCOPED_TRACE(ToString(shape));
    Example example(GetParam(), shape);
    const std::map<std::string, Doubles> expected = CpuResults(example.call());
    RunOnHost(example.call());
    ASSERT_FALSE(example.results().empty());
    for (const std::string& name : example.results()) {
      SCOPED_TRACE(name);
      const ElementType type = example.view(name).type;
      if (IsExact(GetParam())) {
        ASSERT_EQ(example.values(name), Rounded(expected.at(name), type));
      } else {
        ExpectClose(example.values(name), expected.at(name), type, LargestTerm(example));
      }
    }
  }
}

TEST_P(EveryKernel, ChangesNothingButItsResults) {
  for (const ExampleShape& shape : Shapes()) {
    Example example(GetParam(), shape);
    RunOnHost(example.call());
    EXPECT_TRUE(example.OnlyResultsHaveChanged()) << ToString(shape);
  }
}

TEST_P(EveryKernel, GivesTheSameBitsEachTime) {
  for (const ExampleShape& shape : Shapes()) {
    Example once(GetParam(), shape);
    Example again(GetParam(), shape);
    RunOnHost(once.call());
    RunOnHost(again.call());
    EXPECT_TRUE(once.HasTheBitsOf(again)) << ToString(shape);
  }
}

// On a device lanes and blocks run together, in no order.
TEST_P(EveryKernel, GivesTheSameBitsInWhateverOrderLanesAndBlocksRun) {
  for (const ExampleShape& shape : Shapes()) {
    Example forwards(GetParam(), shape);
    Example backwards(GetParam(), shape);
    RunOnHost(forwards.call(), cuda::Turns::kForwards);
    RunOnHost(backwards.call(), cuda::Turns::kBackwards);
    EXPECT_TRUE(forwards.HasTheBitsOf(backwards)) << ToString(shape);
  }
}

TEST_P(EveryKernel, HasNothingToDoWithoutRows) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    Example empty(GetParam(), {type, 0, 9, 3});
    RunOnHost(empty.call());
    EXPECT_TRUE(empty.OnlyResultsHaveChanged());
    for (const std::string& name : empty.results()) {
      if (name == "sum") {
        EXPECT_EQ(empty.values(name), Doubles{0});
      }
    }
  }
}

// Where rows lie decides how they are read, and must not decide what comes out. Sums of squares are
// not among these: they share out groups, of which there are others where rows lie apart.
class KernelByRows : public testing::TestWithParam<std::string> {};

TEST_P(KernelByRows, GivesTheSameBitsWhereverRowsLie) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    Example dense(GetParam(), {type, 33, 40, 0});
    RunOnHost(dense.call());
    for (const int64_t gap : {3, 8}) {
      Example apart(GetParam(), {type, 33, 40, gap});
      RunOnHost(apart.call());
      for (const std::string& name : dense.results()) {
        EXPECT_EQ(dense.values(name), apart.values(name)) << name << " gap " << gap;
      }
    }
  }
}

std::vector<std::string> KindsByRows() {
  std::vector<std::string> kinds = Example::Kinds();
  std::erase(kinds, "sum_of_squares");
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(OfTheList, KernelByRows, testing::ValuesIn(KindsByRows()),
                         [](const auto& kind) { return kind.param; });
INSTANTIATE_TEST_SUITE_P(OfTheList, EveryKernel, testing::ValuesIn(Example::Kinds()),
                         [](const auto& kind) { return kind.param; });

TEST(Examples, AreOfAllCallsButAttention) {
  std::set<std::string> names;
  for (const std::string& kind : Example::Kinds()) {
    names.emplace(NameOf(Example(kind, {.rows = 2, .cols = 2}).call()));
  }
  EXPECT_EQ(names.size(), std::variant_size_v<cuda::Call> - 2);
  EXPECT_EQ(names.size(), Example::Kinds().size());
}

}  // namespace
}  // namespace spiritlevel
