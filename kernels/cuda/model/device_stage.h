// DeviceStage: a run of a transformer's layers on a device, with F, B, W and BW as calls of their
// own. The model is that of kernels/cpu/model, and so are the passes:
//
//   DeviceStage first(shape, {.first_layer = 0, .layers = 2, .embedding = true}, context);
//   DeviceStage last(shape, {.first_layer = 2, .layers = 2, .head = true}, context);
//   DeviceGradients first_sums(first.parameters()), last_sums(last.parameters());
//
//   DeviceStage::Forwarded a = first.Forward(micro_batch, DeviceTensor());
//   DeviceStage::Forwarded b = last.Forward(micro_batch, std::move(a.output));
//   DeviceStage::Backwarded d = last.InputGrad(std::move(b.activation), {}, &last_sums);
//   DeviceStage::Backwarded c = first.InputGrad(std::move(a.activation), std::move(d.dx),
//                                               &first_sums);
//   last.WeightGrad(std::move(d.weight_state));     // any time later, in any order
//   first.WeightGrad(std::move(c.weight_state));
//   last.LossSum(b.losses);                         // waits for the device
//
// A pass posts its work to the context's compute stream and returns; none waits for the device. The
// bits of a result depend on the operands alone, as on the CPU, and for each kind of product on the
// algorithm that ProductPlans holds. They are not those of the CPU: sums have another order, and in
// bf16 what a product leaves for the next kernel is rounded.
//
// Messages may come from another stream: the caller orders `compute` behind it by an event, and
// what is done with them here counts as a use on `compute`. An output is for the caller to order.
//
// Every pass takes what it needs from the pool and has given back, at its end, all but what it
// returns; device_stage_sizes.h says how much that is, before anything runs.
//
// Where a call throws, what was handed to it is gone, and the sums of gradients may have part of
// what it was to add. A mixture of experts is refused: its routing is done by the CPU model alone.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/model/stage.h"
#include "kernels/cuda/model/block_state.h"
#include "kernels/cuda/model/device_parameters.h"

namespace spiritlevel::cuda {

using cpu::MicroBatch;
using cpu::StateIdentity;

// What B needs of F, owned. Destroying it frees all of it.
class DeviceActivation {
 public:
  const StateIdentity& identity() const { return identity_; }
  bool empty() const { return blocks_.empty(); }
  Bytes bytes() const;
  // False after F of a model that recomputes, until Recompute().
  bool is_whole() const { return whole_; }

 private:
  friend class DeviceStage;
  StateIdentity identity_;
  float loss_scale_ = 1;
  bool whole_ = false;
  // One for each block; where F is run again, only the first has its input and the last its
  // targets.
  std::vector<BlockActivation> blocks_;
};

// What W needs of F and B, owned.
class DeviceWeightState {
 public:
  const StateIdentity& identity() const { return identity_; }
  DeviceGradients* target() const { return target_; }
  bool empty() const { return blocks_.empty(); }
  Bytes bytes() const;

 private:
  friend class DeviceStage;
  StateIdentity identity_;
  DeviceGradients* target_ = nullptr;
  std::vector<BlockWeightState> blocks_;
};

// Throws InputError, naming the field, for a model that the CPU alone can run.
void CheckDeviceModel(const cpu::ModelShape& shape);

class DeviceStage {
 public:
  // Throws InputError for shapes that cannot be run. Waits until the parameters are there.
  DeviceStage(const cpu::ModelShape& shape, const cpu::StageRange& range,
              const DeviceContext& context);
  ~DeviceStage();
  DeviceStage(const DeviceStage&) = delete;
  DeviceStage& operator=(const DeviceStage&) = delete;

  struct Forwarded {
    DeviceTensor output;  // [tokens, hidden], under kCommunication; empty of a stage with the head
    DeviceActivation activation;
    DeviceTensor losses;  // [1, tokens] fp32, under kCommunication, not scaled; with the head only
  };
  // `input` is empty for a stage with the embedding, else the output of the stage before.
  Forwarded Forward(const MicroBatch& micro_batch, DeviceTensor input) const;

  // Over a micro-batch's tokens in order, in double. Waits for the device.
  double LossSum(const DeviceTensor& losses) const;

  // Makes what F did not keep. Part of InputGrad and FusedBackward unless it was called before.
  void Recompute(DeviceActivation* activation) const;

  struct Backwarded {
    DeviceTensor dx;  // under kCommunication; empty of a stage with the embedding
    DeviceWeightState weight_state;
  };
  // B. `dy` is empty for a stage with the head. The parameters must be of the activation's version.
  Backwarded InputGrad(DeviceActivation activation, DeviceTensor dy, DeviceGradients* target) const;

  // W.
  void WeightGrad(DeviceWeightState state) const;
  // The part of W that belongs to one block; frees what that needed. Each block once, in any order.
  void WeightGradOfBlock(DeviceWeightState* state, int block) const;

  // BW: the bits of B and then W, with the weight state of one block at a time. Returns dx.
  DeviceTensor FusedBackward(DeviceActivation activation, DeviceTensor dy,
                             DeviceGradients* target) const;

  // BW in parts, from the last block down to the first: what stands between two of them.
  struct BackwardInParts {
    DeviceActivation activation;
    DeviceTensor gradient;  // dy before the first part, dx after the last
    DeviceGradients* target = nullptr;
    int blocks_left = 0;
  };
  BackwardInParts BeginFusedBackward(DeviceActivation activation, DeviceTensor dy,
                                     DeviceGradients* target) const;
  void FusedBackwardOfNextBlock(BackwardInParts* parts) const;

  const cpu::ModelShape& shape() const;
  const cpu::StageRange& range() const;
  const DeviceContext& context() const;
  DeviceParameters& parameters();
  const DeviceParameters& parameters() const;
  // Parameters [first, last) belong to `block`.
  std::pair<int, int> parameters_of(int block) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spiritlevel::cuda
