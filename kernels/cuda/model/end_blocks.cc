// The embedding and the head.
#include <utility>

#include "kernels/cuda/model/block_pass.h"

namespace spiritlevel::cuda {
namespace {

// The gradient of the logits is formed in fp32 where they lie; a product takes operands of one
// type, so it is rounded to that of the model's values, which is also half as much to keep for W.
DeviceTensor LogitsGradient(const PassContext& pass, float loss_scale, HeadActivation* kept) {
  pass.Post(CrossEntropyBackward{.targets = kept->targets.view(),
                                 .log_sum_exp = kept->log_sum_exp.view(),
                                 .scale = loss_scale,
                                 .logits = kept->logits.view()});
  if (StorageOf(*pass.shape) == kept->logits.type()) {
    kept->logits.Retag(TensorUse::kWaitingForW);
    return std::move(kept->logits);
  }
  DeviceTensor rounded =
      pass.New(TensorUse::kWaitingForW, kept->logits.rows(), kept->logits.cols());
  pass.Post(Convert{.from = kept->logits.view(), .to = rounded.view()});
  return rounded;
}

}  // namespace

DeviceTensor ForwardEmbedding(const PassContext& pass, int table, const EmbeddingActivation& kept) {
  const cpu::ModelShape& s = *pass.shape;
  DeviceTensor x = pass.New(TensorUse::kWaitingForB, s.tokens(), s.hidden);
  pass.Post(
      EmbeddingForward{.tokens = kept.tokens.view(), .table = pass.value(table), .x = x.view()});
  pass.Drop(DropoutPlace::kEmbedding, x.view());
  return x;
}

void EmbeddingInputGrad(const PassContext& pass, EmbeddingActivation* kept,
                        EmbeddingWeightState* state, DeviceTensor* stream) {
  pass.Drop(DropoutPlace::kEmbedding, stream->view());
  Keep(std::move(kept->tokens), &state->tokens);
  Keep(std::move(*stream), &state->dx);
}

void EmbeddingWeightGradInto(const WeightGradContext& pass, int table,
                             const EmbeddingWeightState& state) {
  pass.device->Post(EmbeddingWeightGrad{
      .tokens = state.tokens.view(), .dx = state.dx.view(), .dtable = pass.sum(table)});
}

DeviceTensor ForwardHead(const PassContext& pass, const HeadParameters& at, DeviceTensor x,
                         HeadActivation* kept) {
  const cpu::ModelShape& s = *pass.shape;
  ForwardNorm(pass, at.norm, std::move(x), &kept->norm);
  kept->logits = pass.NewFloats(TensorUse::kWaitingForB, s.tokens(), s.vocabulary);
  kept->log_sum_exp = pass.NewFloats(TensorUse::kWaitingForB, 1, s.tokens());
  DeviceTensor losses = pass.NewFloats(TensorUse::kWorkspace, 1, s.tokens());
  // The head is stored as the embedding is, [vocabulary, hidden].
  pass.device->Multiply({.a = kept->norm.y.view(),
                         .b = pass.value(at.weight),
                         .transpose_b = true,
                         .c = kept->logits.view()});
  pass.Post(CrossEntropyForward{.targets = kept->targets.view(),
                                .logits = kept->logits.view(),
                                .losses = losses.view(),
                                .log_sum_exp = kept->log_sum_exp.view()});
  return losses;
}

void HeadInputGrad(const PassContext& pass, const HeadParameters& at, float loss_scale,
                   HeadActivation* kept, HeadWeightState* state, DeviceTensor* stream) {
  const cpu::ModelShape& s = *pass.shape;
  DeviceTensor dlogits = LogitsGradient(pass, loss_scale, kept);
  DeviceTensor dnorm = pass.New(TensorUse::kWaitingForW, s.tokens(), s.hidden);
  pass.device->Multiply({.a = dlogits.view(), .b = pass.value(at.weight), .c = dnorm.view()});
  *stream = pass.New(TensorUse::kWorkspace, s.tokens(), s.hidden);
  NormInputGrad(pass, at.norm, kept->norm, dnorm.view(), stream->view());
  KeepNorm(&kept->norm, std::move(dnorm), &state->norm);
  Keep(std::move(kept->norm.y), &state->head.x);
  Keep(std::move(dlogits), &state->head.dy);
}

void HeadWeightGrad(const WeightGradContext& pass, const HeadParameters& at,
                    const HeadWeightState& state) {
  pass.device->Multiply({.a = state.head.dy.view(),
                         .transpose_a = true,
                         .b = state.head.x.view(),
                         .c = pass.sum(at.weight),
                         .beta = 1});
  NormWeightGrad(pass, at.norm, state.norm);
}

}  // namespace spiritlevel::cuda
