// The embedding and the head.
#include <utility>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/model/block_pass.h"

namespace spiritlevel::cpu {

Tensor ForwardEmbedding(const PassContext& pass, int table, const EmbeddingActivation& kept) {
  const ModelShape& s = *pass.shape;
  const Tensor& rows = pass.value(table);
  Tensor x = pass.New(TensorUse::kWaitingForB, s.tokens(), s.hidden);
  if (s.storage == DType::kFloat32) {
    EmbeddingForward(kept.tokens.ints(), rows.floats(), x.floats());
  } else {
    for (int64_t i = 0; i < s.tokens(); ++i) {
      const int32_t token = kept.tokens.ints()[static_cast<size_t>(i)];
      SPIRITLEVEL_CHECK(token >= 0 && token < s.vocabulary, "a token is in the vocabulary");
      CopyRow(rows, token, &x, i);
    }
  }
  if (!pass.has_dropout()) return x;
  Frame frame(pass.scratch);
  const Matrix values = frame.Change(&x);
  pass.Drop(DropoutSite::Place::kEmbedding, values);
  frame.Store(values, &x);
  return x;
}

void EmbeddingInputGrad(const PassContext& pass, EmbeddingActivation* kept,
                        EmbeddingWeightState* state, Tensor* stream) {
  if (pass.has_dropout()) {
    Frame frame(pass.scratch);
    const Matrix values = frame.Change(stream);
    pass.Drop(DropoutSite::Place::kEmbedding, values);
    frame.Store(values, stream);
  }
  Keep(std::move(kept->tokens), &state->tokens);
  Keep(std::move(*stream), &state->dx);
}

void EmbeddingWeightGradInto(int table, const EmbeddingWeightState& state, Scratch* scratch,
                             GradientStore* sums) {
  Frame frame(scratch);
  EmbeddingWeightGrad(state.tokens.ints(), frame.Read(state.dx), sums->sum(table).floats());
}

double ForwardHead(const PassContext& pass, const HeadParameters& at, Tensor x,
                   HeadActivation* kept) {
  const ModelShape& s = *pass.shape;
  ForwardNorm(pass, at.norm, std::move(x), &kept->norm);
  kept->logits = pass.NewFloats(TensorUse::kWaitingForB, s.tokens(), s.vocabulary);
  kept->log_sum_exp = pass.NewFloats(TensorUse::kWaitingForB, 1, s.tokens());
  kept->losses = pass.NewFloats(TensorUse::kWaitingForB, 1, s.tokens());
  {
    Frame frame(pass.scratch);
    Gemm(1, frame.Read(kept->norm.y), Transpose::kNo, frame.Read(pass.value(at.weight)),
         Transpose::kYes, 0, kept->logits.floats());
  }
  CrossEntropyForward(kept->targets.ints(), kept->logits.floats(), kept->losses.span().data(),
                      kept->log_sum_exp.span().data());
  double sum = 0;
  for (const float loss : kept->losses.span()) sum += static_cast<double>(loss);
  return sum;
}

void HeadInputGrad(const PassContext& pass, const HeadParameters& at, float loss_scale,
                   HeadActivation* kept, HeadWeightState* state, Tensor* stream) {
  const ModelShape& s = *pass.shape;
  CrossEntropyBackward(kept->targets.ints(), kept->log_sum_exp.span().data(), loss_scale,
                       kept->logits.floats());
  Tensor dnorm = pass.New(TensorUse::kWaitingForW, s.tokens(), s.hidden);
  {
    Frame frame(pass.scratch);
    const Matrix out = frame.Write(&dnorm);
    Gemm(1, std::as_const(kept->logits).floats(), Transpose::kNo, frame.Read(pass.value(at.weight)),
         Transpose::kNo, 0, out);
    frame.Store(out, &dnorm);
  }
  *stream = pass.New(TensorUse::kWorkspace, s.tokens(), s.hidden);
  {
    Frame frame(pass.scratch);
    const Matrix dx = frame.Write(stream);
    NormInputGrad(pass, at.norm, kept->norm, dnorm, dx, &frame);
    frame.Store(dx, stream);
  }
  KeepNorm(&kept->norm, std::move(dnorm), &state->norm);
  Keep(std::move(kept->norm.y), &state->head.x);
  Keep(std::move(kept->logits), &state->head.dy);
}

void HeadWeightGrad(const ModelShape& shape, const HeadParameters& at, const HeadWeightState& state,
                    Scratch* scratch, GradientStore* sums) {
  {
    Frame frame(scratch);
    // The head is stored as the embedding is, [vocabulary, hidden].
    Gemm(1, state.head.dy.floats(), Transpose::kYes, frame.Read(state.head.x), Transpose::kNo, 1,
         sums->sum(at.weight).floats());
  }
  NormWeightGradInto(shape, at.norm, state.norm, scratch, sums);
}

}  // namespace spiritlevel::cpu
