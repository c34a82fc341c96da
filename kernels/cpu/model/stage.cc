#include "kernels/cpu/model/stage.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/model/block_pass.h"
#include "kernels/cpu/model/rotation.h"
#include "kernels/cpu/model/scratch_sizes.h"

namespace spiritlevel::cpu {
namespace {

ModelShape Checked(const ModelShape& shape, const StageRange& range) {
  CheckModelShape(shape);
  CheckStageRange(shape, range);
  return shape;
}

template <typename States>
Bytes SumOf(const States& blocks) {
  Bytes sum = 0;
  for (const auto& block : blocks) sum += BytesOf(block);
  return sum;
}

// Where a block's input lies in what it keeps; the embedding has none.
Tensor* InputOf(BlockActivation* block) {
  if (auto* const layer = std::get_if<LayerActivation>(block)) return &layer->attention.norm.x;
  if (auto* const head = std::get_if<HeadActivation>(block)) return &head->norm.x;
  return nullptr;
}

}  // namespace

Bytes Activation::bytes() const { return SumOf(blocks_); }

std::span<const float> Activation::token_losses() const {
  SPIRITLEVEL_CHECK(
      whole_ && !blocks_.empty() && std::holds_alternative<HeadActivation>(blocks_.back()),
      "losses are made by the head");
  return std::get<HeadActivation>(blocks_.back()).losses.span();
}

Bytes WeightState::bytes() const { return SumOf(blocks_); }

class Stage::Impl {
 public:
  Impl(const ModelShape& shape, const StageRange& range, MemoryMeter* meter)
      : shape_(Checked(shape, range)),
        range_(range),
        meter_(meter),
        scratch_(ScratchSizesOf(shape, range)),
        parameters_(shape_, range, meter) {
    if (range.layers > 0) {
      rotation_ = Tensor(meter, TensorUse::kWorkspace, DType::kFloat32, 2 * shape.sequence,
                         shape.head_dim / 2);
      FillRotation(shape.rope_theta, rotation_.floats());
    }
    for (int i = 0; i < parameters_.size(); ++i) {
      while (static_cast<int>(first_parameter_.size()) <= parameters_.info(i).block) {
        first_parameter_.push_back(i);
      }
    }
    first_parameter_.push_back(parameters_.size());
  }

  Forwarded Forward(const MicroBatch& micro_batch, Tensor input) const;
  void Recompute(Activation* activation) const;
  Backwarded InputGrad(Activation activation, Tensor dy, GradientStore* target) const;
  void WeightGradOfBlock(WeightState* state, int block) const;
  BackwardInParts Begin(Activation activation, Tensor dy, GradientStore* target) const;
  void NextPart(BackwardInParts* parts) const;

  const ModelShape shape_;
  const StageRange range_;
  MemoryMeter* const meter_;
  const ScratchSizes scratch_;
  ParameterStore parameters_;
  Tensor rotation_;
  std::vector<int> first_parameter_;  // by block, and the end

 private:
  PassContext Context(const StateIdentity& identity, int block, Scratch* scratch) const;
  Activation NewActivation(const MicroBatch& micro_batch, Tensor* input) const;
  Tensor Ints(std::span<const int32_t> numbers) const;
  Tensor Run(bool keep, Scratch* scratch, Activation* activation, double* loss_sum) const;
  Tensor RunBlock(const PassContext& pass, int block, Tensor x, BlockActivation* kept,
                  double* loss_sum) const;
  void ForgetButInput(int block, BlockActivation* kept) const;
  void CheckBackward(const Activation& activation, const Tensor& dy,
                     const GradientStore* target) const;
  BlockWeightState InputGradOfBlock(const PassContext& pass, int block, float loss_scale,
                                    BlockActivation* kept, Tensor* stream) const;
  void WeightGradOf(const BlockWeightState& state, int block, Scratch* scratch,
                    GradientStore* sums) const;
  void FinishGradient(Tensor* gradient) const;

  int at(int block) const { return first_parameter_[static_cast<size_t>(block)]; }
  bool is_first_layer(int block) const { return block == 0 && !range_.embedding; }
};

PassContext Stage::Impl::Context(const StateIdentity& identity, int block, Scratch* scratch) const {
  return {.shape = &shape_,
          .parameters = &parameters_,
          .rotation = &rotation_,
          .scratch = scratch,
          .iteration = identity.iteration,
          .micro_batch = identity.micro_batch,
          .layer = std::max<int64_t>(0, range_.first_layer + block - range_.embedding)};
}

Tensor Stage::Impl::Ints(std::span<const int32_t> numbers) const {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(numbers.size()) == shape_.tokens(),
                    "a micro-batch has as many tokens as its shape says");
  Tensor copy(meter_, TensorUse::kWaitingForB, DType::kInt32, 1, shape_.tokens());
  std::ranges::copy(numbers, copy.ints().begin());
  return copy;
}

Activation Stage::Impl::NewActivation(const MicroBatch& micro_batch, Tensor* input) const {
  Activation activation;
  activation.identity_ = {.iteration = micro_batch.iteration,
                          .micro_batch = micro_batch.index,
                          .stage = range_,
                          .parameter_version = parameters_.version()};
  activation.loss_scale_ = micro_batch.loss_scale;
  if (range_.embedding) {
    activation.blocks_.emplace_back(EmbeddingActivation{.tokens = Ints(micro_batch.tokens)});
  }
  for (int64_t i = 0; i < range_.layers; ++i) activation.blocks_.emplace_back(LayerActivation{});
  if (range_.head) {
    HeadActivation head;
    head.targets = Ints(micro_batch.targets);
    activation.blocks_.emplace_back(std::move(head));
  }
  SPIRITLEVEL_CHECK(range_.embedding == input->empty(), "the first stage alone has no input");
  if (!range_.embedding) {
    SPIRITLEVEL_CHECK(input->rows() == shape_.tokens() && input->cols() == shape_.hidden &&
                          input->type() == shape_.storage,
                      "a stage's input is the output of the one before");
    input->Retag(TensorUse::kWaitingForB);
    *InputOf(&activation.blocks_.front()) = std::move(*input);
  }
  return activation;
}

Tensor Stage::Impl::RunBlock(const PassContext& pass, int block, Tensor x, BlockActivation* kept,
                             double* loss_sum) const {
  if (auto* const embedding = std::get_if<EmbeddingActivation>(kept)) {
    return ForwardEmbedding(pass, at(block), *embedding);
  }
  if (auto* const head = std::get_if<HeadActivation>(kept)) {
    *loss_sum = ForwardHead(pass, HeadParametersAt(shape_, at(block)), std::move(x), head);
    return Tensor();
  }
  auto& layer = std::get<LayerActivation>(*kept);
  const LayerParameters parameters = LayerParametersAt(shape_, at(block));
  x = ForwardAttention(pass, parameters, std::move(x), &layer.attention);
  return shape_.is_mixture() ? ForwardMixture(pass, parameters, std::move(x), &layer.mlp)
                             : ForwardMlp(pass, parameters, std::move(x), &layer.mlp);
}

// Back to what it was before F: the stage's input, tokens and targets.
void Stage::Impl::ForgetButInput(int block, BlockActivation* kept) const {
  if (std::holds_alternative<EmbeddingActivation>(*kept)) return;
  Tensor input = is_first_layer(block) ? std::move(*InputOf(kept)) : Tensor();
  if (auto* const head = std::get_if<HeadActivation>(kept)) {
    HeadActivation left;
    left.targets = std::move(head->targets);
    left.norm.x = std::move(input);
    *head = std::move(left);
  } else {
    LayerActivation left;
    left.attention.norm.x = std::move(input);
    *kept = std::move(left);
  }
}

Tensor Stage::Impl::Run(bool keep, Scratch* scratch, Activation* activation,
                        double* loss_sum) const {
  Tensor* const input = InputOf(&activation->blocks_.front());
  Tensor x = input == nullptr ? Tensor() : std::move(*input);
  for (int block = 0; block < range_.num_blocks(); ++block) {
    BlockActivation& kept = activation->blocks_[static_cast<size_t>(block)];
    x = RunBlock(Context(activation->identity_, block, scratch), block, std::move(x), &kept,
                 loss_sum);
    if (!keep) ForgetButInput(block, &kept);
  }
  activation->whole_ = keep;
  return x;
}

Stage::Forwarded Stage::Impl::Forward(const MicroBatch& micro_batch, Tensor input) const {
  Forwarded result;
  result.activation = NewActivation(micro_batch, &input);
  Scratch scratch(meter_, scratch_.forward);
  result.output = Run(!shape_.recompute, &scratch, &result.activation, &result.loss_sum);
  if (!result.output.empty()) result.output.Retag(TensorUse::kCommunication);
  return result;
}

void Stage::Impl::Recompute(Activation* activation) const {
  SPIRITLEVEL_CHECK(!activation->whole_ && activation->identity_.stage == range_,
                    "only what F did not keep is made again, on its own stage");
  SPIRITLEVEL_CHECK(activation->identity_.parameter_version == parameters_.version(),
                    "F is run again with the parameters it had");
  Scratch scratch(meter_, scratch_.forward);
  double loss_sum = 0;
  Run(true, &scratch, activation, &loss_sum);
}

void Stage::Impl::CheckBackward(const Activation& activation, const Tensor& dy,
                                const GradientStore* target) const {
  SPIRITLEVEL_CHECK(!activation.empty() && activation.identity_.stage == range_,
                    "an activation goes back through its own stage, once");
  SPIRITLEVEL_CHECK(activation.identity_.parameter_version == parameters_.version(),
                    "B sees the parameters that F saw");
  SPIRITLEVEL_CHECK(target != nullptr && target->size() == parameters_.size(),
                    "W has somewhere to add its gradients to");
  SPIRITLEVEL_CHECK(range_.head == dy.empty(), "the last stage alone has no gradient to come");
  SPIRITLEVEL_CHECK(range_.head || (dy.rows() == shape_.tokens() && dy.cols() == shape_.hidden &&
                                    dy.type() == shape_.storage),
                    "the gradient of an output is like the output");
}

BlockWeightState Stage::Impl::InputGradOfBlock(const PassContext& pass, int block, float loss_scale,
                                               BlockActivation* kept, Tensor* stream) const {
  if (auto* const embedding = std::get_if<EmbeddingActivation>(kept)) {
    EmbeddingWeightState state;
    EmbeddingInputGrad(pass, embedding, &state, stream);
    return state;
  }
  if (auto* const head = std::get_if<HeadActivation>(kept)) {
    HeadWeightState state;
    HeadInputGrad(pass, HeadParametersAt(shape_, at(block)), loss_scale, head, &state, stream);
    return state;
  }
  auto& layer = std::get<LayerActivation>(*kept);
  const LayerParameters parameters = LayerParametersAt(shape_, at(block));
  LayerWeightState state;
  if (shape_.is_mixture()) {
    MixtureInputGrad(pass, parameters, &layer.mlp, &state, stream);
  } else {
    MlpInputGrad(pass, parameters, &layer.mlp, &state, stream);
  }
  AttentionInputGrad(pass, parameters, &layer.attention, &state, stream);
  return state;
}

void Stage::Impl::FinishGradient(Tensor* gradient) const {
  if (!gradient->empty()) gradient->Retag(TensorUse::kCommunication);
}

Stage::Backwarded Stage::Impl::InputGrad(Activation activation, Tensor dy,
                                         GradientStore* target) const {
  CheckBackward(activation, dy, target);
  if (!activation.whole_) Recompute(&activation);
  Backwarded result;
  result.dx = std::move(dy);
  result.weight_state.identity_ = activation.identity_;
  result.weight_state.target_ = target;
  result.weight_state.blocks_.resize(activation.blocks_.size());
  Scratch scratch(meter_, scratch_.input_grad);
  for (int block = range_.num_blocks() - 1; block >= 0; --block) {
    result.weight_state.blocks_[static_cast<size_t>(block)] =
        InputGradOfBlock(Context(activation.identity_, block, &scratch), block,
                         activation.loss_scale_, &activation.blocks_.back(), &result.dx);
    activation.blocks_.pop_back();
  }
  FinishGradient(&result.dx);
  return result;
}

void Stage::Impl::WeightGradOf(const BlockWeightState& state, int block, Scratch* scratch,
                               GradientStore* sums) const {
  if (const auto* const embedding = std::get_if<EmbeddingWeightState>(&state)) {
    EmbeddingWeightGradInto(at(block), *embedding, scratch, sums);
  } else if (const auto* const head = std::get_if<HeadWeightState>(&state)) {
    HeadWeightGrad(shape_, HeadParametersAt(shape_, at(block)), *head, scratch, sums);
  } else {
    const auto* const layer = std::get_if<LayerWeightState>(&state);
    SPIRITLEVEL_CHECK(layer != nullptr, "each block has its W once");
    LayerWeightGrad(shape_, LayerParametersAt(shape_, at(block)), *layer, scratch, sums);
  }
}

void Stage::Impl::WeightGradOfBlock(WeightState* state, int block) const {
  SPIRITLEVEL_CHECK(state->identity_.stage == range_ && !state->empty(),
                    "what waits for W belongs to its stage");
  SPIRITLEVEL_CHECK(block >= 0 && block < range_.num_blocks(), "a block of the stage");
  BlockWeightState& of_block = state->blocks_[static_cast<size_t>(block)];
  Scratch scratch(meter_, scratch_.weight_grad);
  WeightGradOf(of_block, block, &scratch, state->target_);
  of_block = std::monostate();
}

Stage::BackwardInParts Stage::Impl::Begin(Activation activation, Tensor dy,
                                          GradientStore* target) const {
  CheckBackward(activation, dy, target);
  if (!activation.whole_) Recompute(&activation);
  return {.activation = std::move(activation),
          .gradient = std::move(dy),
          .target = target,
          .blocks_left = range_.num_blocks()};
}

void Stage::Impl::NextPart(BackwardInParts* parts) const {
  SPIRITLEVEL_CHECK(parts->blocks_left > 0, "each block has its backward once");
  const int block = --parts->blocks_left;
  Activation& activation = parts->activation;
  Scratch scratch(meter_, std::max(scratch_.input_grad, scratch_.weight_grad));
  const BlockWeightState state =
      InputGradOfBlock(Context(activation.identity_, block, &scratch), block,
                       activation.loss_scale_, &activation.blocks_.back(), &parts->gradient);
  activation.blocks_.pop_back();
  WeightGradOf(state, block, &scratch, parts->target);
  if (block == 0) FinishGradient(&parts->gradient);
}

Stage::Stage(const ModelShape& shape, const StageRange& range, MemoryMeter* meter)
    : impl_(std::make_unique<Impl>(shape, range, meter)) {}
Stage::~Stage() = default;

Stage::Forwarded Stage::Forward(const MicroBatch& micro_batch, Tensor input) const {
  return impl_->Forward(micro_batch, std::move(input));
}

void Stage::Recompute(Activation* activation) const { impl_->Recompute(activation); }

Stage::Backwarded Stage::InputGrad(Activation activation, Tensor dy, GradientStore* target) const {
  return impl_->InputGrad(std::move(activation), std::move(dy), target);
}

void Stage::WeightGrad(WeightState state) const {
  for (int block = impl_->range_.num_blocks() - 1; block >= 0; --block) {
    impl_->WeightGradOfBlock(&state, block);
  }
}

void Stage::WeightGradOfBlock(WeightState* state, int block) const {
  impl_->WeightGradOfBlock(state, block);
}

Tensor Stage::FusedBackward(Activation activation, Tensor dy, GradientStore* target) const {
  BackwardInParts parts = impl_->Begin(std::move(activation), std::move(dy), target);
  while (parts.blocks_left > 0) impl_->NextPart(&parts);
  return std::move(parts.gradient);
}

Stage::BackwardInParts Stage::BeginFusedBackward(Activation activation, Tensor dy,
                                                 GradientStore* target) const {
  return impl_->Begin(std::move(activation), std::move(dy), target);
}

void Stage::FusedBackwardOfNextBlock(BackwardInParts* parts) const { impl_->NextPart(parts); }

const ModelShape& Stage::shape() const { return impl_->shape_; }
const StageRange& Stage::range() const { return impl_->range_; }
ParameterStore& Stage::parameters() { return impl_->parameters_; }
const ParameterStore& Stage::parameters() const { return impl_->parameters_; }

std::pair<int, int> Stage::parameters_of(int block) const {
  SPIRITLEVEL_CHECK(block >= 0 && block < impl_->range_.num_blocks(), "a block of the stage");
  return {impl_->first_parameter_[static_cast<size_t>(block)],
          impl_->first_parameter_[static_cast<size_t>(block) + 1]};
}

}  // namespace spiritlevel::cpu
