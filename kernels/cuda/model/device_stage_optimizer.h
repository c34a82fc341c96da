// DeviceStageOptimizer: AdamW on some of a stage's parameters, and the way back, on a device.
//
//   DeviceStageOptimizer optimizer(&stage.parameters());
//   const DeviceTensor norms = optimizer.PostSquaredNorms(sums);   // to stay on the device, or
//   optimizer.SquaredNorms(sums);                                  // waits, and gives numbers
//   const DeviceStageOptimizer::Snapshot before = optimizer.TakeSnapshot();
//   optimizer.Step(options, sums, clip);
//   optimizer.Restore(before);                        // to the bit; or
//   optimizer.Undo(options, sums, clip);              // by arithmetic, see docs/numerics.md
//
// Parameters stored in bf16 have an fp32 master copy here, which the step changes; they are it,
// rounded. All but SquaredNorms() and the constructor post to the compute stream and return.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/optimizer.h"
#include "kernels/cuda/model/device_parameters.h"

namespace spiritlevel::cuda {

class DeviceStageOptimizer {
 public:
  explicit DeviceStageOptimizer(DeviceParameters* parameters);
  // Only of parameters `owned`, ascending: a shard of a data-parallel group.
  DeviceStageOptimizer(DeviceParameters* parameters, std::vector<int> owned);

  // Of the owned parameters, [1, owned] fp64 under kWorkspace.
  DeviceTensor PostSquaredNorms(const DeviceGradients& gradients) const;
  // Their sum in model order over all stages is the squared norm. Waits for the device.
  std::vector<double> SquaredNorms(const DeviceGradients& gradients) const;

  // One step: step() and the parameters' version go up by one. `clip` is ClipCoefficient()'s.
  void Step(const cpu::AdamW& options, const DeviceGradients& gradients, float clip);

  // The inverse of the last Step(), which had these arguments. Not exact.
  void Undo(const cpu::AdamW& options, const DeviceGradients& gradients, float clip);

  struct Snapshot {
    int64_t step = 0;
    int64_t version = 0;
    std::vector<DeviceTensor> tensors;
  };
  Snapshot TakeSnapshot() const;  // under kOptimizer
  void Restore(const Snapshot& snapshot);

  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }
  const std::vector<int>& owned() const { return owned_; }

  // By position in owned(), fp32, of the parameter's shape. master() is empty in fp32.
  DeviceTensor& first_moment(int i) { return states_[static_cast<size_t>(i)].first; }
  DeviceTensor& second_moment(int i) { return states_[static_cast<size_t>(i)].second; }
  DeviceTensor& master(int i) { return states_[static_cast<size_t>(i)].master; }

 private:
  struct State {
    DeviceTensor first;
    DeviceTensor second;
    DeviceTensor master;
  };
  State NewState(const cpu::ParameterInfo& info) const;
  AdamWStep CallFor(size_t i, const cpu::AdamW& options, const DeviceGradients& gradients,
                    float clip);
  const DeviceContext& context() const { return parameters_->context(); }

  DeviceParameters* parameters_;
  std::vector<int> owned_;
  std::vector<State> states_;
  int64_t step_ = 0;
};

}  // namespace spiritlevel::cuda
