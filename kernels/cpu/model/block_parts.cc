#include <utility>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/model/block_pass.h"
#include "kernels/cpu/norm.h"

namespace spiritlevel::cpu {
namespace {

// Numbers parameters in the order of ParametersOf().
class Counter {
 public:
  Counter(const ModelShape& shape, int first) : shape_(shape), next_(first) {}

  int One() { return next_++; }
  Affine Norm() { return WithBias(shape_.norm == NormKind::kLayer); }
  Affine Linear() { return WithBias(shape_.biases); }

 private:
  Affine WithBias(bool bias) {
    Affine affine{.weight = One()};
    if (bias) affine.bias = One();
    return affine;
  }

  const ModelShape& shape_;
  int next_;
};

// Rows of a norm's statistics.
constexpr int64_t kInverse = 0;
constexpr int64_t kMean = 1;

float* SumOrNull(GradientStore* sums, int parameter) {
  return parameter == kNoParameter ? nullptr : sums->sum(parameter).span().data();
}

}  // namespace

LayerParameters LayerParametersAt(const ModelShape& shape, int first) {
  Counter next(shape, first);
  LayerParameters at;
  at.attention_norm = next.Norm();
  at.qkv = next.Linear();
  at.attention_output = next.Linear();
  at.mlp_norm = next.Norm();
  if (shape.is_mixture()) {
    at.router = next.One();
    at.up.weight = next.One();
    at.down.weight = next.One();
  } else {
    at.up = next.Linear();
    at.down = next.Linear();
  }
  return at;
}

HeadParameters HeadParametersAt(const ModelShape& shape, int first) {
  Counter next(shape, first);
  HeadParameters at;
  at.norm = next.Norm();
  at.weight = next.One();
  return at;
}

void PassContext::Drop(DropoutSite::Place place, Matrix x) const {
  if (!has_dropout()) return;
  ApplyDropout(shape->dropout,
               {.seed = shape->seed,
                .iteration = iteration,
                .micro_batch = micro_batch,
                .layer = layer,
                .place = place},
               x);
}

void ForwardLinear(const PassContext& pass, const Affine& affine, ConstMatrix x, Matrix y,
                   Frame* frame) {
  const ConstMatrix w = frame->Read(pass.value(affine.weight));
  const float* const bias =
      affine.bias == kNoParameter ? nullptr : frame->Read(pass.value(affine.bias)).data();
  LinearForward(x, w, bias, y);
}

void ForwardNorm(const PassContext& pass, const Affine& affine, Tensor x, NormActivation* norm) {
  const ModelShape& s = *pass.shape;
  const bool centred = s.norm == NormKind::kLayer;
  x.Retag(TensorUse::kWaitingForB);
  norm->x = std::move(x);
  norm->statistics = pass.NewFloats(TensorUse::kWaitingForB, centred ? 2 : 1, s.tokens());
  norm->y = pass.New(TensorUse::kWaitingForB, s.tokens(), s.hidden);
  Frame frame(pass.scratch);
  const ConstMatrix in = frame.Read(norm->x);
  const float* const weight = frame.Read(pass.value(affine.weight)).data();
  const Matrix out = frame.Write(&norm->y);
  const Matrix statistics = norm->statistics.floats();
  if (centred) {
    LayerNormForward(in, weight, frame.Read(pass.value(affine.bias)).data(), s.norm_epsilon, out,
                     statistics.row(kMean), statistics.row(kInverse));
  } else {
    RmsNormForward(in, weight, s.norm_epsilon, out, statistics.row(kInverse));
  }
  frame.Store(out, &norm->y);
}

void NormInputGrad(const PassContext& pass, const Affine& affine, const NormActivation& norm,
                   const Tensor& dy, Matrix dx, Frame* frame) {
  const ConstMatrix x = frame->Read(norm.x);
  const float* const weight = frame->Read(pass.value(affine.weight)).data();
  const ConstMatrix grad = frame->Read(dy);
  const ConstMatrix statistics = norm.statistics.floats();
  if (pass.shape->norm == NormKind::kLayer) {
    LayerNormInputGrad(x, weight, statistics.row(kMean), statistics.row(kInverse), grad, dx);
  } else {
    RmsNormInputGrad(x, weight, statistics.row(kInverse), grad, dx);
  }
}

Tensor TakeBranchGradient(const PassContext& pass, DropoutSite::Place place, Tensor* stream) {
  if (!pass.has_dropout()) {
    stream->Retag(TensorUse::kWaitingForW);
    return std::move(*stream);
  }
  Tensor dropped = stream->Copy(TensorUse::kWaitingForW);
  Frame frame(pass.scratch);
  const Matrix values = frame.Change(&dropped);
  pass.Drop(place, values);
  frame.Store(values, &dropped);
  return dropped;
}

void ReturnBranchGradient(const PassContext& pass, const Affine& affine, const Tensor& taken,
                          NormActivation* norm, Tensor dy, NormWeightState* state, Tensor* stream) {
  const bool anew = stream->empty();
  if (anew) *stream = pass.New(TensorUse::kWorkspace, taken.rows(), taken.cols());
  {
    Frame frame(pass.scratch);
    const Matrix dx = frame.New(dy.rows(), dy.cols());
    NormInputGrad(pass, affine, *norm, dy, dx, &frame);
    Add(anew ? taken : *stream, dx, stream);
  }
  KeepNorm(norm, std::move(dy), state);
}

void Keep(Tensor tensor, Tensor* kept) {
  tensor.Retag(TensorUse::kWaitingForW);
  *kept = std::move(tensor);
}

void KeepNorm(NormActivation* norm, Tensor dy, NormWeightState* state) {
  Keep(std::move(norm->x), &state->x);
  Keep(std::move(norm->statistics), &state->statistics);
  Keep(std::move(dy), &state->dy);
}

void LinearWeightGradInto(const Affine& affine, const LinearWeightState& state, Scratch* scratch,
                          GradientStore* sums) {
  Frame frame(scratch);
  LinearWeightGrad(frame.Read(state.x), frame.Read(state.dy), sums->sum(affine.weight).floats(),
                   SumOrNull(sums, affine.bias));
}

void NormWeightGradInto(const ModelShape& shape, const Affine& affine, const NormWeightState& state,
                        Scratch* scratch, GradientStore* sums) {
  Frame frame(scratch);
  const ConstMatrix x = frame.Read(state.x);
  const ConstMatrix dy = frame.Read(state.dy);
  const ConstMatrix statistics = state.statistics.floats();
  float* const dweight = SumOrNull(sums, affine.weight);
  if (shape.norm == NormKind::kLayer) {
    LayerNormWeightGrad(x, statistics.row(kMean), statistics.row(kInverse), dy, dweight,
                        SumOrNull(sums, affine.bias));
  } else {
    RmsNormWeightGrad(x, statistics.row(kInverse), dy, dweight);
  }
}

void LayerWeightGrad(const ModelShape& shape, const LayerParameters& at,
                     const LayerWeightState& state, Scratch* scratch, GradientStore* sums) {
  if (shape.is_mixture()) {
    MixtureWeightGrad(shape, at, state, scratch, sums);
  } else {
    LinearWeightGradInto(at.down, state.down, scratch, sums);
    LinearWeightGradInto(at.up, state.up, scratch, sums);
  }
  NormWeightGradInto(shape, at.mlp_norm, state.mlp_norm, scratch, sums);
  LinearWeightGradInto(at.attention_output, state.attention_output, scratch, sums);
  LinearWeightGradInto(at.qkv, state.qkv, scratch, sums);
  NormWeightGradInto(shape, at.attention_norm, state.attention_norm, scratch, sums);
}

}  // namespace spiritlevel::cpu
