#include <algorithm>
#include <utility>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/model/block_pass.h"
#include "kernels/cpu/model/mlp_activation.h"
#include "kernels/cpu/model/routing.h"

namespace spiritlevel::cpu {
namespace {

// Expert e's slots, as rows of tensors that hold those of all experts.
struct Slots {
  int64_t expert = 0;
  int64_t begin = 0;
  int64_t filled = 0;
  const int32_t* tokens = nullptr;  // of each filled slot
};

Slots SlotsOf(const ModelShape& s, const Tensor& token_of_slot, const Tensor& filled,
              int64_t expert) {
  const int64_t capacity = CapacityOf(s);
  return {.expert = expert,
          .begin = expert * capacity,
          .filled = filled.ints()[static_cast<size_t>(expert)],
          .tokens = token_of_slot.ints().data() + expert * capacity};
}

Affine Of(const Affine& first, int64_t expert) {
  return {.weight = first.weight + static_cast<int>(2 * expert)};
}

void Route(const PassContext& pass, const LayerParameters& at, MlpActivation* kept) {
  const ModelShape& s = *pass.shape;
  RoutingActivation& routing = kept->routing;
  routing.probabilities = pass.NewFloats(TensorUse::kWaitingForB, s.tokens(), s.experts);
  routing.token_of_slot = pass.NewInts(TensorUse::kWaitingForB, s.experts, CapacityOf(s));
  routing.filled = pass.NewInts(TensorUse::kWaitingForB, 1, s.experts);
  {
    Frame frame(pass.scratch);
    const Matrix logits = routing.probabilities.floats();
    ForwardLinear(pass, {.weight = at.router}, frame.Read(kept->norm.y), logits, &frame);
    SoftmaxRows(logits);
  }
  FillSlots(routing.probabilities.floats(), s.top_k, CapacityOf(s), routing.token_of_slot.ints(),
            routing.filled.ints());
}

// Tokens' vectors to their slots.
void Dispatch(const PassContext& pass, MlpActivation* kept) {
  const ModelShape& s = *pass.shape;
  kept->routing.x = pass.New(TensorUse::kWaitingForB, s.experts * CapacityOf(s), s.hidden);
  for (int64_t e = 0; e < s.experts; ++e) {
    const Slots slots = SlotsOf(s, kept->routing.token_of_slot, kept->routing.filled, e);
    for (int64_t i = 0; i < slots.filled; ++i) {
      CopyRow(kept->norm.y, slots.tokens[i], &kept->routing.x, slots.begin + i);
    }
  }
}

// Adds the expert's results, times what the router thinks of it, to the rows of its tokens.
void ForwardExpert(const PassContext& pass, const LayerParameters& at, const Slots& slots,
                   MlpActivation* kept, Matrix sum) {
  const ModelShape& s = *pass.shape;
  Frame frame(pass.scratch);
  const Matrix up = frame.Write(&kept->up, slots.begin, slots.filled);
  ForwardLinear(pass, Of(at.up, slots.expert),
                frame.Read(kept->routing.x, slots.begin, slots.filled), up, &frame);
  frame.Store(up, &kept->up, slots.begin);
  const Matrix act = frame.Write(&kept->act, slots.begin, slots.filled);
  ForwardMlpActivation(s, up, act);
  frame.Store(act, &kept->act, slots.begin);
  const Matrix y = frame.New(slots.filled, s.hidden);
  ForwardLinear(pass, Of(at.down, slots.expert), act, y, &frame);
  const ConstMatrix probabilities = kept->routing.probabilities.floats();
  for (int64_t i = 0; i < slots.filled; ++i) {
    const float weight = probabilities(slots.tokens[i], slots.expert);
    float* const to = sum.row(slots.tokens[i]);
    const float* const from = y.row(i);
    for (int64_t j = 0; j < s.hidden; ++j) to[j] += weight * from[j];
  }
}

// What an expert's B works with.
struct ExpertGradients {
  ConstMatrix dy;  // of what the mixture gives, [t, h]
  Tensor* dslots;  // for W: of what the expert gives, [slots, h]
  Matrix dprobabilities;
  Matrix dx;  // of the mixture's input, added to
};

// With w = probability: y += w act W, so dw = (dy W^T) . act and the rest is scaled by w.
void ExpertInputGrad(const PassContext& pass, const LayerParameters& at, const Slots& slots,
                     MlpActivation* kept, const ExpertGradients& out) {
  const ModelShape& s = *pass.shape;
  Frame frame(pass.scratch);
  const Matrix dslots = frame.Write(out.dslots, slots.begin, slots.filled);
  for (int64_t i = 0; i < slots.filled; ++i) {
    std::copy_n(out.dy.row(slots.tokens[i]), s.hidden, dslots.row(i));
  }
  const Matrix dact = frame.New(slots.filled, s.intermediate);
  LinearInputGrad(dslots, frame.Read(pass.value(Of(at.down, slots.expert).weight)), dact);
  const ConstMatrix act = frame.Read(kept->act, slots.begin, slots.filled);
  const ConstMatrix probabilities = kept->routing.probabilities.floats();
  for (int64_t i = 0; i < slots.filled; ++i) {
    const int64_t token = slots.tokens[i];
    const float weight = probabilities(token, slots.expert);
    out.dprobabilities(token, slots.expert) =
        DotAndScale(act.row(i), weight, s.intermediate, dact.row(i));
    Scale(weight, s.hidden, dslots.row(i));
  }
  frame.Store(dslots, out.dslots, slots.begin);
  const Matrix up = frame.Change(&kept->up, slots.begin, slots.filled);
  MlpActivationInputGrad(s, dact, up);
  frame.Store(up, &kept->up, slots.begin);
  const Matrix dx = frame.New(slots.filled, s.hidden);
  LinearInputGrad(up, frame.Read(pass.value(Of(at.up, slots.expert).weight)), dx);
  for (int64_t i = 0; i < slots.filled; ++i) {
    float* const to = out.dx.row(slots.tokens[i]);
    const float* const from = dx.row(i);
    for (int64_t j = 0; j < s.hidden; ++j) to[j] += from[j];
  }
}

void ExpertsInputGrad(const PassContext& pass, const LayerParameters& at, MlpActivation* kept,
                      const ExpertGradients& out) {
  for (int64_t e = 0; e < pass.shape->experts; ++e) {
    const Slots slots = SlotsOf(*pass.shape, kept->routing.token_of_slot, kept->routing.filled, e);
    if (slots.filled > 0) ExpertInputGrad(pass, at, slots, kept, out);
  }
}

// The gradient that reaches the mixture from the stream behind it.
ConstMatrix BranchGradient(const PassContext& pass, const Tensor& stream, Frame* frame) {
  if (!pass.has_dropout()) return frame->Read(stream);
  const Matrix dropped = frame->New(stream.rows(), stream.cols());
  for (int64_t i = 0; i < stream.rows(); ++i) ReadRow(stream, i, dropped.row(i));
  pass.Drop(DropoutSite::Place::kMlp, dropped);
  return dropped;
}

}  // namespace

Tensor ForwardMixture(const PassContext& pass, const LayerParameters& at, Tensor x,
                      MlpActivation* kept) {
  const ModelShape& s = *pass.shape;
  const int64_t slots = s.experts * CapacityOf(s);
  ForwardNorm(pass, at.mlp_norm, std::move(x), &kept->norm);
  Route(pass, at, kept);
  Dispatch(pass, kept);
  kept->up = pass.New(TensorUse::kWaitingForB, slots, s.up_width());
  kept->act = pass.New(TensorUse::kWaitingForB, slots, s.intermediate);
  Tensor sum = pass.New(TensorUse::kWaitingForB, s.tokens(), s.hidden);
  Frame frame(pass.scratch);
  const Matrix y = frame.New(s.tokens(), s.hidden);
  std::fill_n(y.data(), y.rows() * y.cols(), 0.0f);
  // In the order of experts, so that a token's results are added up in one order always.
  for (int64_t e = 0; e < s.experts; ++e) {
    const Slots of = SlotsOf(s, kept->routing.token_of_slot, kept->routing.filled, e);
    if (of.filled > 0) ForwardExpert(pass, at, of, kept, y);
  }
  pass.Drop(DropoutSite::Place::kMlp, y);
  Add(kept->norm.x, y, &sum);
  return sum;
}

void MixtureInputGrad(const PassContext& pass, const LayerParameters& at, MlpActivation* kept,
                      LayerWeightState* state, Tensor* stream) {
  const ModelShape& s = *pass.shape;
  Tensor dslots = pass.New(TensorUse::kWaitingForW, s.experts * CapacityOf(s), s.hidden);
  Tensor drouter = pass.NewFloats(TensorUse::kWaitingForW, s.tokens(), s.experts);
  Tensor dnorm = pass.New(TensorUse::kWaitingForW, s.tokens(), s.hidden);
  {
    Frame frame(pass.scratch);
    const Matrix dx = frame.Write(&dnorm);
    std::fill_n(dx.data(), dx.rows() * dx.cols(), 0.0f);
    std::ranges::fill(drouter.span(), 0.0f);
    ExpertsInputGrad(pass, at, kept,
                     {.dy = BranchGradient(pass, *stream, &frame),
                      .dslots = &dslots,
                      .dprobabilities = drouter.floats(),
                      .dx = dx});
    SoftmaxRowsInputGrad(std::as_const(kept->routing.probabilities).floats(), drouter.floats());
    Gemm(1, std::as_const(drouter).floats(), Transpose::kNo, frame.Read(pass.value(at.router)),
         Transpose::kYes, 1, dx);
    frame.Store(dx, &dnorm);
  }
  // The stream has not been taken: W needs the rows of the slots instead.
  ReturnBranchGradient(pass, at.mlp_norm, *stream, &kept->norm, std::move(dnorm), &state->mlp_norm,
                       stream);
  Keep(std::move(kept->norm.y), &state->router.x);
  Keep(std::move(drouter), &state->router.dy);
  Keep(std::move(kept->routing.x), &state->up.x);
  Keep(std::move(kept->up), &state->up.dy);
  Keep(std::move(kept->act), &state->down.x);
  Keep(std::move(dslots), &state->down.dy);
  Keep(std::move(kept->routing.filled), &state->filled);
}

void MixtureWeightGrad(const ModelShape& s, const LayerParameters& at,
                       const LayerWeightState& state, Scratch* scratch, GradientStore* sums) {
  LinearWeightGradInto({.weight = at.router}, state.router, scratch, sums);
  const int64_t capacity = CapacityOf(s);
  const auto expert = [&](const Affine& affine, const LinearWeightState& linear, int64_t e) {
    const int64_t filled = state.filled.ints()[static_cast<size_t>(e)];
    if (filled == 0) return;
    Frame frame(scratch);
    LinearWeightGrad(frame.Read(linear.x, e * capacity, filled),
                     frame.Read(linear.dy, e * capacity, filled),
                     sums->sum(Of(affine, e).weight).floats(), nullptr);
  };
  for (int64_t e = 0; e < s.experts; ++e) {
    expert(at.down, state.down, e);
    expert(at.up, state.up, e);
  }
}

}  // namespace spiritlevel::cpu
