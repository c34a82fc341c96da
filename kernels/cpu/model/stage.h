// Stage: a run of a transformer's layers, with F, B, W and BW as calls of their own.
//
//   Stage first(shape, {.first_layer = 0, .layers = 2, .embedding = true}, &meter);
//   Stage last(shape, {.first_layer = 2, .layers = 2, .head = true}, &meter);
//   GradientStore first_sums(first.parameters()), last_sums(last.parameters());
//
//   Stage::Forwarded a = first.Forward(micro_batch, Tensor());
//   Stage::Forwarded b = last.Forward(micro_batch, std::move(a.output));
//   Stage::Backwarded d = last.InputGrad(std::move(b.activation), Tensor(), &last_sums);
//   Stage::Backwarded c = first.InputGrad(std::move(a.activation), std::move(d.dx), &first_sums);
//   last.WeightGrad(std::move(d.weight_state));     // any time later, in any order
//   first.WeightGrad(std::move(c.weight_state));
//
// Passes of different micro-batches may be called in any order. The bits of a result depend on the
// operands alone: not on when a pass runs, on other micro-batches, on how the model is cut, nor on
// whether B and W run as one; a sum of gradients depends on the order of its W. OpenBLAS must have
// one thread (UseOneBlasThread()).
//
// Every pass takes what it needs from the stage's MemoryMeter and has given back, at its end, all
// but what it returns; stage_sizes.h says how much that is, before anything runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/model/block_state.h"
#include "kernels/cpu/model/model_shape.h"
#include "kernels/cpu/model/parameters.h"
#include "kernels/cpu/model/tensor.h"

namespace spiritlevel::cpu {

struct MicroBatch {
  int64_t iteration = 0;  // with `index`, what dropout's masks depend on
  int64_t index = 0;      // unique in the iteration, over data-parallel replicas, too
  // shape.tokens() each; may go after F. Only stages with the embedding or the head look at theirs.
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;  // kIgnoredTarget does not count
  float loss_scale = 1;  // of gradients: 1 / tokens of the iteration for a mean; losses stay as is
};

// Which op a state belongs to.
struct StateIdentity {
  int64_t iteration = 0;
  int64_t micro_batch = 0;
  StageRange stage;
  int64_t parameter_version = 0;

  friend bool operator==(const StateIdentity&, const StateIdentity&) = default;
};

// What B needs of F, owned. Destroying it frees all of it.
class Activation {
 public:
  const StateIdentity& identity() const { return identity_; }
  bool empty() const { return blocks_.empty(); }
  Bytes bytes() const;
  // False after F of a model that recomputes, until Recompute().
  bool is_whole() const { return whole_; }
  // Of a whole one of a stage with the head, one a token; not scaled.
  std::span<const float> token_losses() const;

 private:
  friend class Stage;
  StateIdentity identity_;
  float loss_scale_ = 1;
  bool whole_ = false;
  // One for each block; where F is run again, only the first has its input and the last its
  // targets.
  std::vector<BlockActivation> blocks_;
};

// What W needs of F and B, owned.
class WeightState {
 public:
  const StateIdentity& identity() const { return identity_; }
  GradientStore* target() const { return target_; }
  bool empty() const { return blocks_.empty(); }
  Bytes bytes() const;

 private:
  friend class Stage;
  StateIdentity identity_;
  GradientStore* target_ = nullptr;
  std::vector<BlockWeightState> blocks_;
};

class Stage {
 public:
  // Throws InputError for shapes that cannot be run.
  Stage(const ModelShape& shape, const StageRange& range, MemoryMeter* meter);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  struct Forwarded {
    Tensor output;  // [tokens, hidden], under kCommunication; empty of a stage with the head
    Activation activation;
    double loss_sum = 0;  // over the micro-batch's tokens in order; with the head only
  };
  // `input` is empty for a stage with the embedding, else the output of the stage before.
  Forwarded Forward(const MicroBatch& micro_batch, Tensor input) const;

  // Makes what F did not keep. Part of InputGrad and FusedBackward unless it was called before.
  void Recompute(Activation* activation) const;

  struct Backwarded {
    Tensor dx;  // under kCommunication; empty of a stage with the embedding
    WeightState weight_state;
  };
  // B. `dy` is empty for a stage with the head. The parameters must be of the activation's version.
  Backwarded InputGrad(Activation activation, Tensor dy, GradientStore* target) const;

  // W.
  void WeightGrad(WeightState state) const;
  // The part of W that belongs to one block; frees what that needed. Each block once, in any order.
  void WeightGradOfBlock(WeightState* state, int block) const;

  // BW: the bits of B and then W, with the weight state of one block at a time. Returns dx.
  Tensor FusedBackward(Activation activation, Tensor dy, GradientStore* target) const;

  // BW in parts, from the last block down to the first: what stands between two of them.
  struct BackwardInParts {
    Activation activation;
    Tensor gradient;  // dy before the first part, dx after the last
    GradientStore* target = nullptr;
    int blocks_left = 0;
  };
  BackwardInParts BeginFusedBackward(Activation activation, Tensor dy, GradientStore* target) const;
  void FusedBackwardOfNextBlock(BackwardInParts* parts) const;

  const ModelShape& shape() const;
  const StageRange& range() const;
  ParameterStore& parameters();
  const ParameterStore& parameters() const;
  // Parameters [first, last) of the store belong to `block`.
  std::pair<int, int> parameters_of(int block) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spiritlevel::cpu
