#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/calls.h"
#include "tests/kernels/cuda/examples.h"

namespace spiritlevel {
namespace {

using cuda::ElementType;
using cuda::View;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr ExampleShape kShape{ElementType::kBFloat16, 6, 10, 3};

// Calls `change` with each operand of each example, and its kind and name.
void EachOperand(
    const std::function<void(const std::string&, std::string_view, Example*, View*)>& change) {
  for (const std::string& kind : Example::Kinds()) {
    const size_t operands = ViewsOf(Example(kind, kShape).call()).size();
    for (size_t i = 0; i < operands; ++i) {
      Example example(kind, kShape);
      const cuda::NamedView operand = ViewsOf(example.call())[i];
      // The example, and with it the call, is not const.
      change(kind, operand.name, &example, const_cast<View*>(operand.view));
    }
  }
}

void ExpectRefused(const Example& example, std::string_view name) {
  EXPECT_THROW(CheckCall(example.call()), InvariantError)
      << name << " of " << Describe(example.call());
}

TEST(CheckCall, LetsEveryExamplePass) {
  for (const std::string& kind : Example::Kinds()) {
    EXPECT_NO_THROW(CheckCall(Example(kind, kShape).call())) << kind;
  }
}

TEST(CheckCall, RefusesATypeThatNoKernelReads) {
  EachOperand([](const std::string&, std::string_view name, Example* example, View* view) {
    view->type = view->type == ElementType::kInt32 ? ElementType::kFloat32 : ElementType::kInt32;
    ExpectRefused(*example, name);
  });
}

TEST(CheckCall, RefusesAnOperandWithoutMemory) {
  EachOperand([](const std::string&, std::string_view name, Example* example, View* view) {
    if (name == "stored") return;  // may be left out
    view->data = nullptr;
    ExpectRefused(*example, name);
  });
}

TEST(CheckCall, RefusesElementsThatLieAcross) {
  EachOperand([](const std::string&, std::string_view name, Example* example, View* view) {
    view->data = static_cast<std::byte*>(view->data) + 1;
    ExpectRefused(*example, name);
  });
}

TEST(CheckCall, RefusesRowsThatOverlap) {
  EachOperand([](const std::string&, std::string_view name, Example* example, View* view) {
    if (view->rows < 2) return;
    view->stride = view->cols - 1;
    ExpectRefused(*example, name);
  });
}

TEST(CheckCall, RefusesOneColumnTooMany) {
  EachOperand([](const std::string& kind, std::string_view name, Example* example, View* view) {
    if (kind == "fill" || kind == "dropout" || kind == "sum_of_squares") return;  // they take any
    if (name == "workspace" || name == "logits") return;  // of any size; of any vocabulary
    ++view->cols;
    ++view->stride;
    ExpectRefused(*example, name);
  });
}

TEST(CheckCall, RefusesOneRowTooMany) {
  const std::set<std::pair<std::string, std::string>> take_any = {
      {"fill", "to"},
      {"dropout", "x"},
      {"rotate", "x"},
      {"sum_of_squares", "x"},
      {"add_bias", "x"},
      {"column_sums", "x"},
      {"embedding_forward", "table"},
      {"embedding_weight_grad", "dtable"}};
  EachOperand([&](const std::string& kind, std::string_view name, Example* example, View* view) {
    if (name == "workspace" || take_any.contains({kind, std::string(name)})) return;
    ++view->rows;
    ExpectRefused(*example, name);
  });
}

TEST(CheckCall, RefusesAWorkspaceThatIsTooSmall) {
  int workspaces = 0;
  EachOperand([&](const std::string&, std::string_view name, Example* example, View* view) {
    if (name != "workspace") return;
    ++workspaces;
    --view->cols;
    --view->stride;
    ExpectRefused(*example, name);
  });
  EXPECT_EQ(workspaces, 4);
}

template <typename T>
void ExpectMisfit(const std::string& kind, const std::function<void(T*)>& change,
                  const std::string& why) {
  Example example(kind, {ElementType::kBFloat16, 6, 10, 0});
  change(&std::get<T>(example.call()));
  EXPECT_THAT([&] { CheckCall(example.call()); },
              ThrowsMessage<InvariantError>(AllOf(HasSubstr(why), HasSubstr(kind))));
}

TEST(CheckCall, NamesTheCallAndWhatIsWrongWithIt) {
  ExpectMisfit<cuda::Dropout>(
      "dropout", [](auto* c) { c->probability = 1; }, "a probability");
  ExpectMisfit<cuda::Dropout>(
      "dropout", [](auto* c) { c->x.cols -= 1; }, "without gaps");
  ExpectMisfit<cuda::Dropout>(
      "dropout", [](auto* c) { c->iteration = -1; }, "32 bits");
  ExpectMisfit<cuda::Dropout>(
      "dropout", [](auto* c) { c->layer = int64_t{1} << 30; }, "32 bits");
  ExpectMisfit<cuda::Rotate>(
      "rotate", [](auto* c) { c->head_dim = 0; }, "whole heads");
  ExpectMisfit<cuda::Rotate>(
      "rotate", [](auto* c) { c->head_dim = 21; }, "whole heads");
  ExpectMisfit<cuda::Rotate>(
      "rotate", [](auto* c) { c->head_dim = 40; }, "half a head");
  ExpectMisfit<cuda::AdamWStep>(
      "adamw_step", [](auto* c) { c->step = 0; }, "from 1");
  ExpectMisfit<cuda::AdamWUndo>(
      "adamw_undo", [](auto* c) { c->step.beta1 = 0; }, "an inverse");
  ExpectMisfit<cuda::AdamWUndo>(
      "adamw_undo", [](auto* c) { c->step.weight_decay = 200; }, "an inverse");
  ExpectMisfit<cuda::Product>(
      "product", [](auto* c) { c->transpose_a = false; }, "as many as the rows of B");
  ExpectMisfit<cuda::Product>(
      "product", [](auto* c) { c->c.type = ElementType::kFloat8E4M3; }, "C is fp32 or bf16");
  ExpectMisfit<cuda::Product>(
      "product", [](auto* c) { c->scale_a = &c->alpha; }, "fp8 alone");
  ExpectMisfit<cuda::Add>(
      "add", [](auto* c) { c->b.type = ElementType::kFloat32; }, "one type");
}

// An attention that fits, over memory that nobody touches.
class AttentionCalls : public testing::Test {
 protected:
  static constexpr auto kType = ElementType::kBFloat16;

  View Queries() { return cuda::Dense(memory_.data(), kType, 2 * 16, 4 * 8); }
  View Keys() { return cuda::Dense(memory_.data(), kType, 2 * 16, 2 * 8); }
  View Sums() { return cuda::Dense(memory_.data(), ElementType::kFloat32, 2 * 4, 16); }

  cuda::AttentionShape shape_{.batch = 2, .sequence = 16, .heads = 4, .kv_heads = 2, .head_dim = 8};
  std::vector<double> memory_ = std::vector<double>(4096);

  cuda::AttentionForward Forward() {
    return {shape_, Queries(), Keys(), Keys(), Queries(), Sums()};
  }
  cuda::AttentionBackward Backward() {
    const int64_t floats = AttentionWorkspace(shape_) / 4;
    return {shape_,
            Queries(),
            Keys(),
            Keys(),
            Queries(),
            Sums(),
            Queries(),
            Queries(),
            Keys(),
            Keys(),
            cuda::Dense(memory_.data(), ElementType::kFloat32, 1, floats)};
  }
  static void ExpectRefused(const cuda::Call& call, const std::string& why) {
    EXPECT_THAT([&] { CheckCall(call); }, ThrowsMessage<InvariantError>(HasSubstr(why)));
  }
};

TEST_F(AttentionCalls, PassIfTheyFit) {
  EXPECT_NO_THROW(CheckCall(Forward()));
  EXPECT_NO_THROW(CheckCall(Backward()));
}

TEST_F(AttentionCalls, AreRefusedWithShapesOfAnother) {
  const auto misfit = [&](const auto& change, const std::string& why) {
    cuda::AttentionForward forward = Forward();
    change(&forward);
    ExpectRefused(forward, why);
    cuda::AttentionBackward backward = Backward();
    change(&backward);
    ExpectRefused(backward, why);
  };
  misfit([](auto* c) { c->shape.kv_heads = 3; }, "evenly");
  misfit([](auto* c) { c->shape.kv_heads = 0; }, "sequences and heads");
  misfit([](auto* c) { c->shape.batch = 3; }, "sequences of tokens");
  misfit([](auto* c) { c->shape.heads = 8; }, "columns of queries");
  misfit([](auto* c) { c->shape.kv_heads = 1; }, "columns of keys");
  misfit([](auto* c) { c->shape.scale = -1; }, "a scale");
  misfit([](auto* c) { c->log_sum_exp.rows = 4; }, "each head and token");
  misfit([](auto* c) { c->log_sum_exp.type = kType; }, "fp32");
  misfit([](auto* c) { c->k.type = ElementType::kFloat32; }, "one type");
  misfit([](auto* c) { c->out.cols = 16; }, "one shape");
}

TEST_F(AttentionCalls, OfTheBackwardNeedTheirWorkspace) {
  cuda::AttentionBackward call = Backward();
  ASSERT_GT(call.workspace.size(), 0);
  --call.workspace.cols;
  --call.workspace.stride;
  ExpectRefused(call, "large enough");
}

TEST(Describe, SaysTypesShapesAndStrides) {
  std::vector<float> memory(100);
  const View x = cuda::Dense(memory.data(), ElementType::kFloat32, 4, 10);
  EXPECT_EQ(Describe(cuda::GeluForward{x.Columns(0, 5), x.Columns(5, 5)}),
            "gelu_forward: x fp32 [4, 5] stride 10, y fp32 [4, 5] stride 10");
  EXPECT_EQ(Describe(cuda::Product{.a = x, .transpose_a = true, .b = x, .c = x, .beta = 1}),
            "product: a fp32 [4, 10], b fp32 [4, 10], c fp32 [4, 10], a transposed, added to c");
}

TEST(NameOf, IsTheNameOfTheExamplesKind) {
  for (const std::string& kind : Example::Kinds()) {
    EXPECT_EQ(NameOf(Example(kind, kShape).call()), kind);
  }
}

}  // namespace
}  // namespace spiritlevel
