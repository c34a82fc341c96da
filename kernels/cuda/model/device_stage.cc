#include "kernels/cuda/model/device_stage.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/loss.h"
#include "kernels/cpu/model/rotation.h"
#include "kernels/cuda/model/block_pass.h"
#include "kernels/cuda/model/device_scratch_sizes.h"

namespace spiritlevel::cuda {
namespace {

using cpu::ModelShape;
using cpu::StageRange;

ModelShape Checked(const ModelShape& shape, const StageRange& range) {
  cpu::CheckModelShape(shape);
  cpu::CheckStageRange(shape, range);
  CheckDeviceModel(shape);
  return shape;
}

template <typename States>
Bytes SumOf(const States& blocks) {
  Bytes sum = 0;
  for (const auto& block : blocks) sum += BytesOf(block);
  return sum;
}

// Where a block's input lies in what it keeps; the embedding has none.
DeviceTensor* InputOf(BlockActivation* block) {
  if (auto* const layer = std::get_if<LayerActivation>(block)) return &layer->attention.norm.x;
  if (auto* const head = std::get_if<HeadActivation>(block)) return &head->norm.x;
  return nullptr;
}

DeviceTensor RotationTable(const ModelShape& shape, const DeviceContext& context) {
  std::vector<float> values(static_cast<size_t>(shape.sequence * shape.head_dim));
  cpu::FillRotation(shape.rope_theta,
                    cpu::Matrix(values.data(), 2 * shape.sequence, shape.head_dim / 2));
  DeviceTensor table(context, TensorUse::kWorkspace, ElementType::kFloat32, 2 * shape.sequence,
                     shape.head_dim / 2);
  SetFloats(context, values, &table);
  return table;
}

}  // namespace

void CheckDeviceModel(const ModelShape& shape) {
  if (!shape.is_mixture()) return;
  throw InputError("mlp: a mixture of experts cannot be run on a GPU yet",
                   "use swiglu or gelu, or run it with the CPU backend");
}

Bytes DeviceActivation::bytes() const { return SumOf(blocks_); }
Bytes DeviceWeightState::bytes() const { return SumOf(blocks_); }

class DeviceStage::Impl {
 public:
  Impl(const ModelShape& shape, const StageRange& range, const DeviceContext& context)
      : shape_(Checked(shape, range)),
        range_(range),
        context_(context),
        scratch_(DeviceScratchSizesOf(shape, range)),
        parameters_(shape_, range, context) {
    if (range.layers > 0) rotation_ = RotationTable(shape, context);
    for (int i = 0; i < parameters_.size(); ++i) {
      while (static_cast<int>(first_parameter_.size()) <= parameters_.info(i).block) {
        first_parameter_.push_back(i);
      }
    }
    first_parameter_.push_back(parameters_.size());
  }

  Forwarded Forward(const MicroBatch& micro_batch, DeviceTensor input) const;
  void Recompute(DeviceActivation* activation) const;
  Backwarded InputGrad(DeviceActivation activation, DeviceTensor dy, DeviceGradients* target) const;
  void WeightGradOfBlock(DeviceWeightState* state, int block) const;
  BackwardInParts Begin(DeviceActivation activation, DeviceTensor dy,
                        DeviceGradients* target) const;
  void NextPart(BackwardInParts* parts) const;

  const ModelShape shape_;
  const StageRange range_;
  const DeviceContext context_;
  const DeviceScratchSizes scratch_;
  DeviceParameters parameters_;
  DeviceTensor rotation_;
  std::vector<int> first_parameter_;  // by block, and the end

 private:
  PassContext Context(const StateIdentity& identity, int block, Scratch* scratch) const;
  DeviceActivation NewActivation(const MicroBatch& micro_batch, DeviceTensor* input) const;
  DeviceTensor Ints(std::span<const int32_t> numbers, int32_t least) const;
  void CheckMessage(const DeviceTensor& message, const char* what) const;
  DeviceTensor Run(bool keep, Scratch* scratch, DeviceActivation* activation,
                   DeviceTensor* losses) const;
  DeviceTensor RunBlock(const PassContext& pass, int block, DeviceTensor x, BlockActivation* kept,
                        DeviceTensor* losses) const;
  void ForgetButInput(int block, BlockActivation* kept) const;
  void CheckBackward(const DeviceActivation& activation, const DeviceTensor& dy,
                     const DeviceGradients* target) const;
  BlockWeightState InputGradOfBlock(const PassContext& pass, int block, float loss_scale,
                                    BlockActivation* kept, DeviceTensor* stream) const;
  void WeightGradOf(const BlockWeightState& state, int block, Scratch* scratch,
                    DeviceGradients* sums) const;
  void FinishMessage(DeviceTensor* message) const;

  int at(int block) const { return first_parameter_[static_cast<size_t>(block)]; }
  bool is_first_layer(int block) const { return block == 0 && !range_.embedding; }
};

PassContext DeviceStage::Impl::Context(const StateIdentity& identity, int block,
                                       Scratch* scratch) const {
  return {.device = &context_,
          .shape = &shape_,
          .parameters = &parameters_,
          .rotation = &rotation_,
          .scratch = scratch,
          .iteration = identity.iteration,
          .micro_batch = identity.micro_batch,
          .layer = std::max<int64_t>(0, range_.first_layer + block - range_.embedding)};
}

// Looked at here: a kernel cannot say that a token is none.
DeviceTensor DeviceStage::Impl::Ints(std::span<const int32_t> numbers, int32_t least) const {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(numbers.size()) == shape_.tokens(),
                    "a micro-batch has as many tokens as its shape says");
  const auto is_known = [&](int32_t token) { return token >= least && token < shape_.vocabulary; };
  SPIRITLEVEL_CHECK(std::ranges::all_of(numbers, is_known), "a token is in the vocabulary");
  DeviceTensor copy(context_, TensorUse::kWaitingForB, ElementType::kInt32, 1, shape_.tokens());
  context_.staging->Upload(context_.compute, copy.data(), numbers.data(), copy.bytes());
  return copy;
}

void DeviceStage::Impl::CheckMessage(const DeviceTensor& message, const char* what) const {
  SPIRITLEVEL_CHECK(message.rows() == shape_.tokens() && message.cols() == shape_.hidden &&
                        message.type() == StorageOf(shape_),
                    what);
}

DeviceActivation DeviceStage::Impl::NewActivation(const MicroBatch& micro_batch,
                                                  DeviceTensor* input) const {
  DeviceActivation activation;
  activation.identity_ = {.iteration = micro_batch.iteration,
                          .micro_batch = micro_batch.index,
                          .stage = range_,
                          .parameter_version = parameters_.version()};
  activation.loss_scale_ = micro_batch.loss_scale;
  if (range_.embedding) {
    activation.blocks_.emplace_back(EmbeddingActivation{.tokens = Ints(micro_batch.tokens, 0)});
  }
  for (int64_t i = 0; i < range_.layers; ++i) activation.blocks_.emplace_back(LayerActivation{});
  if (range_.head) {
    HeadActivation head;
    head.targets = Ints(micro_batch.targets, cpu::kIgnoredTarget);
    activation.blocks_.emplace_back(std::move(head));
  }
  SPIRITLEVEL_CHECK(range_.embedding == input->empty(), "the first stage alone has no input");
  if (!range_.embedding) {
    CheckMessage(*input, "a stage's input is the output of the one before");
    input->UsedOn(context_.compute);
    input->Retag(TensorUse::kWaitingForB);
    *InputOf(&activation.blocks_.front()) = std::move(*input);
  }
  return activation;
}

DeviceTensor DeviceStage::Impl::RunBlock(const PassContext& pass, int block, DeviceTensor x,
                                         BlockActivation* kept, DeviceTensor* losses) const {
  if (auto* const embedding = std::get_if<EmbeddingActivation>(kept)) {
    return ForwardEmbedding(pass, at(block), *embedding);
  }
  if (auto* const head = std::get_if<HeadActivation>(kept)) {
    *losses = ForwardHead(pass, cpu::HeadParametersAt(shape_, at(block)), std::move(x), head);
    return DeviceTensor();
  }
  auto& layer = std::get<LayerActivation>(*kept);
  const LayerParameters parameters = cpu::LayerParametersAt(shape_, at(block));
  x = ForwardAttention(pass, parameters, std::move(x), &layer.attention);
  return ForwardMlp(pass, parameters, std::move(x), &layer.mlp);
}

// Back to what it was before F: the stage's input, tokens and targets.
void DeviceStage::Impl::ForgetButInput(int block, BlockActivation* kept) const {
  if (std::holds_alternative<EmbeddingActivation>(*kept)) return;
  DeviceTensor input = is_first_layer(block) ? std::move(*InputOf(kept)) : DeviceTensor();
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

DeviceTensor DeviceStage::Impl::Run(bool keep, Scratch* scratch, DeviceActivation* activation,
                                    DeviceTensor* losses) const {
  DeviceTensor* const input = InputOf(&activation->blocks_.front());
  DeviceTensor x = input == nullptr ? DeviceTensor() : std::move(*input);
  for (int block = 0; block < range_.num_blocks(); ++block) {
    BlockActivation& kept = activation->blocks_[static_cast<size_t>(block)];
    x = RunBlock(Context(activation->identity_, block, scratch), block, std::move(x), &kept,
                 losses);
    if (!keep) ForgetButInput(block, &kept);
  }
  activation->whole_ = keep;
  return x;
}

DeviceStage::Forwarded DeviceStage::Impl::Forward(const MicroBatch& micro_batch,
                                                  DeviceTensor input) const {
  Forwarded result;
  result.activation = NewActivation(micro_batch, &input);
  Scratch scratch(context_, scratch_.forward);
  result.output = Run(!shape_.recompute, &scratch, &result.activation, &result.losses);
  FinishMessage(&result.output);
  FinishMessage(&result.losses);
  return result;
}

void DeviceStage::Impl::Recompute(DeviceActivation* activation) const {
  SPIRITLEVEL_CHECK(!activation->whole_ && activation->identity_.stage == range_,
                    "only what F did not keep is made again, on its own stage");
  SPIRITLEVEL_CHECK(activation->identity_.parameter_version == parameters_.version(),
                    "F is run again with the parameters it had");
  Scratch scratch(context_, scratch_.forward);
  DeviceTensor losses;
  Run(true, &scratch, activation, &losses);
}

void DeviceStage::Impl::CheckBackward(const DeviceActivation& activation, const DeviceTensor& dy,
                                      const DeviceGradients* target) const {
  SPIRITLEVEL_CHECK(!activation.empty() && activation.identity_.stage == range_,
                    "an activation goes back through its own stage, once");
  SPIRITLEVEL_CHECK(activation.identity_.parameter_version == parameters_.version(),
                    "B sees the parameters that F saw");
  SPIRITLEVEL_CHECK(target != nullptr && target->size() == parameters_.size(),
                    "W has somewhere to add its gradients to");
  SPIRITLEVEL_CHECK(range_.head == dy.empty(), "the last stage alone has no gradient to come");
  if (!range_.head) CheckMessage(dy, "the gradient of an output is like the output");
}

BlockWeightState DeviceStage::Impl::InputGradOfBlock(const PassContext& pass, int block,
                                                     float loss_scale, BlockActivation* kept,
                                                     DeviceTensor* stream) const {
  if (auto* const embedding = std::get_if<EmbeddingActivation>(kept)) {
    EmbeddingWeightState state;
    EmbeddingInputGrad(pass, embedding, &state, stream);
    return state;
  }
  if (auto* const head = std::get_if<HeadActivation>(kept)) {
    HeadWeightState state;
    HeadInputGrad(pass, cpu::HeadParametersAt(shape_, at(block)), loss_scale, head, &state, stream);
    return state;
  }
  auto& layer = std::get<LayerActivation>(*kept);
  const LayerParameters parameters = cpu::LayerParametersAt(shape_, at(block));
  LayerWeightState state;
  MlpInputGrad(pass, parameters, &layer.mlp, &state, stream);
  AttentionInputGrad(pass, parameters, &layer.attention, &state, stream);
  return state;
}

void DeviceStage::Impl::FinishMessage(DeviceTensor* message) const {
  if (!message->empty()) message->Retag(TensorUse::kCommunication);
}

DeviceStage::Backwarded DeviceStage::Impl::InputGrad(DeviceActivation activation, DeviceTensor dy,
                                                     DeviceGradients* target) const {
  CheckBackward(activation, dy, target);
  if (!dy.empty()) dy.UsedOn(context_.compute);
  if (!activation.whole_) Recompute(&activation);
  Backwarded result;
  result.dx = std::move(dy);
  result.weight_state.identity_ = activation.identity_;
  result.weight_state.target_ = target;
  result.weight_state.blocks_.resize(activation.blocks_.size());
  Scratch scratch(context_, scratch_.input_grad);
  for (int block = range_.num_blocks() - 1; block >= 0; --block) {
    result.weight_state.blocks_[static_cast<size_t>(block)] =
        InputGradOfBlock(Context(activation.identity_, block, &scratch), block,
                         activation.loss_scale_, &activation.blocks_.back(), &result.dx);
    activation.blocks_.pop_back();
  }
  FinishMessage(&result.dx);
  return result;
}

void DeviceStage::Impl::WeightGradOf(const BlockWeightState& state, int block, Scratch* scratch,
                                     DeviceGradients* sums) const {
  const WeightGradContext pass{
      .device = &context_, .shape = &shape_, .scratch = scratch, .sums = sums};
  if (const auto* const embedding = std::get_if<EmbeddingWeightState>(&state)) {
    EmbeddingWeightGradInto(pass, at(block), *embedding);
  } else if (const auto* const head = std::get_if<HeadWeightState>(&state)) {
    HeadWeightGrad(pass, cpu::HeadParametersAt(shape_, at(block)), *head);
  } else {
    const auto* const layer = std::get_if<LayerWeightState>(&state);
    SPIRITLEVEL_CHECK(layer != nullptr, "each block has its W once");
    LayerWeightGrad(pass, cpu::LayerParametersAt(shape_, at(block)), *layer);
  }
}

void DeviceStage::Impl::WeightGradOfBlock(DeviceWeightState* state, int block) const {
  SPIRITLEVEL_CHECK(state->identity_.stage == range_ && !state->empty(),
                    "what waits for W belongs to its stage");
  SPIRITLEVEL_CHECK(block >= 0 && block < range_.num_blocks(), "a block of the stage");
  BlockWeightState& of_block = state->blocks_[static_cast<size_t>(block)];
  Scratch scratch(context_, scratch_.weight_grad);
  WeightGradOf(of_block, block, &scratch, state->target_);
  of_block = std::monostate();
}

DeviceStage::BackwardInParts DeviceStage::Impl::Begin(DeviceActivation activation, DeviceTensor dy,
                                                      DeviceGradients* target) const {
  CheckBackward(activation, dy, target);
  if (!dy.empty()) dy.UsedOn(context_.compute);
  if (!activation.whole_) Recompute(&activation);
  return {.activation = std::move(activation),
          .gradient = std::move(dy),
          .target = target,
          .blocks_left = range_.num_blocks()};
}

void DeviceStage::Impl::NextPart(BackwardInParts* parts) const {
  SPIRITLEVEL_CHECK(parts->blocks_left > 0, "each block has its backward once");
  const int block = --parts->blocks_left;
  DeviceActivation& activation = parts->activation;
  Scratch scratch(context_, std::max(scratch_.input_grad, scratch_.weight_grad));
  const BlockWeightState state =
      InputGradOfBlock(Context(activation.identity_, block, &scratch), block,
                       activation.loss_scale_, &activation.blocks_.back(), &parts->gradient);
  activation.blocks_.pop_back();
  WeightGradOf(state, block, &scratch, parts->target);
  if (block == 0) FinishMessage(&parts->gradient);
}

DeviceStage::DeviceStage(const ModelShape& shape, const StageRange& range,
                         const DeviceContext& context)
    : impl_(std::make_unique<Impl>(shape, range, context)) {}
DeviceStage::~DeviceStage() = default;

DeviceStage::Forwarded DeviceStage::Forward(const MicroBatch& micro_batch,
                                            DeviceTensor input) const {
  return impl_->Forward(micro_batch, std::move(input));
}

double DeviceStage::LossSum(const DeviceTensor& losses) const {
  double sum = 0;
  for (const float loss : FloatsOf(impl_->context_, losses)) sum += static_cast<double>(loss);
  return sum;
}

void DeviceStage::Recompute(DeviceActivation* activation) const { impl_->Recompute(activation); }

DeviceStage::Backwarded DeviceStage::InputGrad(DeviceActivation activation, DeviceTensor dy,
                                               DeviceGradients* target) const {
  return impl_->InputGrad(std::move(activation), std::move(dy), target);
}

void DeviceStage::WeightGrad(DeviceWeightState state) const {
  for (int block = impl_->range_.num_blocks() - 1; block >= 0; --block) {
    impl_->WeightGradOfBlock(&state, block);
  }
}

void DeviceStage::WeightGradOfBlock(DeviceWeightState* state, int block) const {
  impl_->WeightGradOfBlock(state, block);
}

DeviceTensor DeviceStage::FusedBackward(DeviceActivation activation, DeviceTensor dy,
                                        DeviceGradients* target) const {
  BackwardInParts parts = impl_->Begin(std::move(activation), std::move(dy), target);
  while (parts.blocks_left > 0) impl_->NextPart(&parts);
  return std::move(parts.gradient);
}

DeviceStage::BackwardInParts DeviceStage::BeginFusedBackward(DeviceActivation activation,
                                                             DeviceTensor dy,
                                                             DeviceGradients* target) const {
  return impl_->Begin(std::move(activation), std::move(dy), target);
}

void DeviceStage::FusedBackwardOfNextBlock(BackwardInParts* parts) const { impl_->NextPart(parts); }

const ModelShape& DeviceStage::shape() const { return impl_->shape_; }
const StageRange& DeviceStage::range() const { return impl_->range_; }
const DeviceContext& DeviceStage::context() const { return impl_->context_; }
DeviceParameters& DeviceStage::parameters() { return impl_->parameters_; }
const DeviceParameters& DeviceStage::parameters() const { return impl_->parameters_; }

std::pair<int, int> DeviceStage::parameters_of(int block) const {
  SPIRITLEVEL_CHECK(block >= 0 && block < impl_->range_.num_blocks(), "a block of the stage");
  return {impl_->first_parameter_[static_cast<size_t>(block)],
          impl_->first_parameter_[static_cast<size_t>(block) + 1]};
}

}  // namespace spiritlevel::cuda
