// StageOptimizer: AdamW on some of a stage's parameters, and the way back.
//
//   StageOptimizer optimizer(&stage.parameters());
//   optimizer.SquaredNorms(sums);                     // one number a parameter, in their order
//   const StageOptimizer::Snapshot before = optimizer.TakeSnapshot();
//   optimizer.Step(options, sums, clip);
//   optimizer.Restore(before);                        // to the bit; or
//   optimizer.Undo(options, sums, clip);              // by arithmetic, see docs/numerics.md
//
// Parameters stored in bf16 have an fp32 master copy here, which the step changes; they are it,
// rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/model/parameters.h"
#include "kernels/cpu/optimizer.h"

namespace spiritlevel::cpu {

class StageOptimizer {
 public:
  explicit StageOptimizer(ParameterStore* parameters);
  // Only of parameters `owned`, ascending: a shard of a data-parallel group.
  StageOptimizer(ParameterStore* parameters, std::vector<int> owned);

  // Of the owned parameters. Their sum in model order over all stages is the squared norm.
  std::vector<double> SquaredNorms(const GradientStore& gradients) const;

  // One step: step() and the store's version go up by one. `clip` is ClipCoefficient()'s.
  void Step(const AdamW& options, const GradientStore& gradients, float clip);

  // The inverse of the last Step(), which had these arguments. Not exact.
  void Undo(const AdamW& options, const GradientStore& gradients, float clip);

  struct Snapshot {
    int64_t step = 0;
    int64_t version = 0;
    std::vector<Tensor> tensors;
  };
  Snapshot TakeSnapshot() const;  // under kOptimizer
  void Restore(const Snapshot& snapshot);

  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }
  const std::vector<int>& owned() const { return owned_; }

  // By position in owned(), fp32, of the parameter's shape. master() is empty in fp32.
  Tensor& first_moment(int i) { return states_[static_cast<size_t>(i)].first; }
  Tensor& second_moment(int i) { return states_[static_cast<size_t>(i)].second; }
  Tensor& master(int i) { return states_[static_cast<size_t>(i)].master; }

 private:
  struct State {
    Tensor first;
    Tensor second;
    Tensor master;
  };
  std::span<float> Exact(int i);  // the fp32 values that the step changes
  void RoundToStorage(int i);

  ParameterStore* parameters_;
  std::vector<int> owned_;
  std::vector<State> states_;
  int64_t step_ = 0;
};

}  // namespace spiritlevel::cpu
