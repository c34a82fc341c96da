// The workspace of a pass is counted to the byte, whichever of its operations needs the most.
#include "kernels/cpu/model/scratch_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/model/block_pass.h"
#include "kernels/cpu/model/rotation.h"
#include "tests/kernels/model/tiny_models.h"

namespace spiritlevel {
namespace {

using cpu::ModelShape;
using cpu::Scratch;
using cpu::ScratchSizes;
using cpu::TensorUse;

constexpr Bytes kPlenty = 1 << 22;

// One block's F, B and W with more room than they need.
class Measured {
 public:
  Measured(const ModelShape& shape, const cpu::StageRange& range)
      : shape_(shape),
        parameters_(shape, range, &meter_),
        sums_(parameters_),
        rotation_(&meter_, TensorUse::kWorkspace, cpu::DType::kFloat32, 2 * shape.sequence,
                  shape.head_dim / 2),
        forward_(&meter_, kPlenty),
        input_grad_(&meter_, kPlenty),
        weight_grad_(&meter_, kPlenty) {
    cpu::FillRotation(shape.rope_theta, rotation_.floats());
  }

  ScratchSizes OfALayer() {
    const cpu::LayerParameters at = cpu::LayerParametersAt(shape_, 0);
    cpu::LayerActivation kept;
    cpu::Tensor x = cpu::ForwardAttention(Pass(&forward_), at, Rows(), &kept.attention);
    x = shape_.is_mixture() ? cpu::ForwardMixture(Pass(&forward_), at, std::move(x), &kept.mlp)
                            : cpu::ForwardMlp(Pass(&forward_), at, std::move(x), &kept.mlp);
    cpu::Tensor stream = Rows();
    cpu::LayerWeightState state;
    if (shape_.is_mixture()) {
      cpu::MixtureInputGrad(Pass(&input_grad_), at, &kept.mlp, &state, &stream);
    } else {
      cpu::MlpInputGrad(Pass(&input_grad_), at, &kept.mlp, &state, &stream);
    }
    cpu::AttentionInputGrad(Pass(&input_grad_), at, &kept.attention, &state, &stream);
    cpu::LayerWeightGrad(shape_, at, state, &weight_grad_, &sums_);
    return Used();
  }

  ScratchSizes OfTheEmbedding() {
    cpu::EmbeddingActivation kept{.tokens = Numbers()};
    cpu::ForwardEmbedding(Pass(&forward_), 0, kept);
    cpu::Tensor stream = Rows();
    cpu::EmbeddingWeightState state;
    cpu::EmbeddingInputGrad(Pass(&input_grad_), &kept, &state, &stream);
    cpu::EmbeddingWeightGradInto(0, state, &weight_grad_, &sums_);
    return Used();
  }

  ScratchSizes OfTheHead() {
    const cpu::HeadParameters at = cpu::HeadParametersAt(shape_, 0);
    cpu::HeadActivation kept;
    kept.targets = Numbers();
    cpu::ForwardHead(Pass(&forward_), at, Rows(), &kept);
    cpu::Tensor stream;
    cpu::HeadWeightState state;
    cpu::HeadInputGrad(Pass(&input_grad_), at, 1, &kept, &state, &stream);
    cpu::HeadWeightGrad(shape_, at, state, &weight_grad_, &sums_);
    return Used();
  }

 private:
  cpu::PassContext Pass(Scratch* scratch) const {
    return {
        .shape = &shape_, .parameters = &parameters_, .rotation = &rotation_, .scratch = scratch};
  }
  // All rows are alike, so that all tokens go to the same experts and fill them.
  cpu::Tensor Rows() {
    cpu::Tensor rows(&meter_, TensorUse::kWaitingForB, shape_.storage, shape_.tokens(),
                     shape_.hidden);
    std::fill_n(static_cast<char*>(rows.data()), rows.bytes(), char{0x3C});
    return rows;
  }
  cpu::Tensor Numbers() {
    cpu::Tensor numbers(&meter_, TensorUse::kWaitingForB, cpu::DType::kInt32, 1, shape_.tokens());
    std::ranges::fill(numbers.ints(), 1);
    return numbers;
  }
  ScratchSizes Used() const {
    return {.forward = forward_.most_used(),
            .input_grad = input_grad_.most_used(),
            .weight_grad = weight_grad_.most_used()};
  }

  const ModelShape shape_;
  cpu::MemoryMeter meter_;
  cpu::ParameterStore parameters_;
  cpu::GradientStore sums_;
  cpu::Tensor rotation_;
  Scratch forward_;
  Scratch input_grad_;
  Scratch weight_grad_;
};

// Each dimension in turn is large against the others, and no product of them a multiple of 16.
std::vector<ModelShape> Lopsided(ModelShape shape) {
  std::vector<ModelShape> shapes;
  shape.layers = 1;
  for (int64_t ModelShape::*const large :
       {&ModelShape::hidden, &ModelShape::intermediate, &ModelShape::vocabulary,
        &ModelShape::sequence, &ModelShape::sequences}) {
    shapes.push_back(shape);
    shapes.back().*large = 203;
  }
  for (const int64_t head_dim : {2, 86}) {
    shapes.push_back(shape);
    shapes.back().head_dim = head_dim;
    shapes.back().sequences = 5;
  }
  // Wide, but with few tokens, so that weights are what is large; and against attention's tiles,
  // which are always there.
  for (const auto& [hidden, intermediate] : {std::pair<int64_t, int64_t>{101, 303}, {303, 101}}) {
    for (const int64_t sequence : {1, 31}) {
      shapes.push_back(shape);
      shapes.back().hidden = hidden;
      shapes.back().intermediate = intermediate;
      shapes.back().sequence = sequence;
    }
  }
  shapes.push_back(shape);
  shapes.back().hidden = 101;
  shapes.back().head_dim = 86;
  shapes.back().sequence = shapes.back().sequences = 1;
  shapes.push_back(shape);
  shapes.back().intermediate = shapes.back().sequences = 203;
  return shapes;
}

class ScratchOf : public testing::TestWithParam<TinyModel> {};

void ExpectEqual(const ScratchSizes& used, const ScratchSizes& counted) {
  EXPECT_EQ(used.forward, counted.forward);
  EXPECT_EQ(used.input_grad, counted.input_grad);
  EXPECT_EQ(used.weight_grad, counted.weight_grad);
}

TEST_P(ScratchOf, EachBlockIsUsedToTheLastByte) {
  cpu::UseOneBlasThread();
  for (const ModelShape& shape : Lopsided(GetParam().shape)) {
    SCOPED_TRACE(testing::Message()
                 << "hidden " << shape.hidden << " intermediate " << shape.intermediate
                 << " vocabulary " << shape.vocabulary << " head_dim " << shape.head_dim
                 << " tokens " << shape.sequences << " x " << shape.sequence);
    cpu::CheckModelShape(shape);
    const cpu::StageRange layer{.first_layer = 0, .layers = 1};
    const cpu::StageRange embedding{.first_layer = 0, .layers = 0, .embedding = true};
    const cpu::StageRange head{.first_layer = 1, .layers = 0, .head = true};
    ExpectEqual(Measured(shape, layer).OfALayer(), cpu::ScratchSizesOf(shape, layer));
    ExpectEqual(Measured(shape, embedding).OfTheEmbedding(), cpu::ScratchSizesOf(shape, embedding));
    ExpectEqual(Measured(shape, head).OfTheHead(), cpu::ScratchSizesOf(shape, head));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ScratchOf, testing::ValuesIn(TinyModelsOfEveryStorage()), NameOf);

}  // namespace
}  // namespace spiritlevel
