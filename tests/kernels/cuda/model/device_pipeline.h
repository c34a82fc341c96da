// A model in stages on one device, most often a fake one, each with a compute stream of its own,
// and messages that are copied between them on another stream, as a transport would.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/model/device_stage.h"
#include "tests/kernels/cuda/fake_layer.h"
#include "tests/kernels/model/tiny_models.h"

namespace spiritlevel::cuda {

// Models that a device can run: all but mixtures. Some are large enough for several tiles of a sum.
std::vector<TinyModel> DeviceModels();
// The same, each also with recomputation and also in bf16.
std::vector<TinyModel> DeviceModelsOfEveryStorage();

// For products: enough for the fake's first choice, which is none.
inline constexpr Bytes kLittleWorkspace = 4096;

// What one rank posts with. The streams go on to the layer's end.
class TestRank {
 public:
  TestRank(Layer* layer, BufferPool* pool, Bytes workspace = kLittleWorkspace);

  const DeviceContext& context() const { return context_; }

 private:
  ProductPlans plans_;
  HostStaging staging_;
  Buffer workspace_;
  DeviceContext context_;
};

// One stage alone, with a pool of its own.
struct StageAlone {
  StageAlone(Layer* layer, const cpu::ModelShape& shape, const cpu::StageRange& range,
             BufferPoolSettings settings = {})
      : pool(layer, 0, settings), rank(layer, &pool), stage(shape, range, rank.context()) {}

  // A made-up message of finite numbers; empty unless `there`.
  DeviceTensor Message(bool there) const;

  BufferPool pool;
  TestRank rank;
  DeviceStage stage;
};

std::string BitsOfTensor(const DeviceContext& context, const DeviceTensor& tensor);
Doubles ValuesOf(const DeviceContext& context, const DeviceTensor& tensor);

class DevicePipeline {
 public:
  // With the values of Enliven().
  DevicePipeline(Layer* layer, const cpu::ModelShape& shape, int stages,
                 Bytes workspace = kLittleWorkspace);

  BufferPool& pool() { return *pool_; }
  int size() const { return static_cast<int>(stages_.size()); }
  DeviceStage& stage(int i) { return *stages_[static_cast<size_t>(i)]; }
  DeviceGradients& sums(int i) { return *sums_[static_cast<size_t>(i)]; }

  // All stages up.
  struct InFlight {
    std::vector<DeviceActivation> activations;  // by stage
    DeviceTensor losses;
  };
  InFlight Forward(const ReferenceBatch& batch, float loss_scale);
  // Of the last stage's losses.
  double LossSum(const InFlight& flight) { return stage(size() - 1).LossSum(flight.losses); }
  // All stages down; by stage what waits for W.
  std::vector<DeviceWeightState> InputGrads(InFlight flight);
  void WeightGrads(std::vector<DeviceWeightState> states);
  void FusedBackward(InFlight flight);
  // From the stream of one stage to that of another.
  DeviceTensor Hop(DeviceTensor message, int from, int to);

  // By name over all stages.
  NamedValues Gradients();
  std::map<std::string, std::string> GradientBits();

 private:
  void Order(Stream first, Stream then);

  Layer* layer_;
  std::unique_ptr<BufferPool> pool_;  // outlives its tensors
  Stream copies_{};
  std::vector<std::unique_ptr<TestRank>> ranks_;
  std::vector<std::unique_ptr<DeviceStage>> stages_;
  std::vector<std::unique_ptr<DeviceGradients>> sums_;
};

}  // namespace spiritlevel::cuda
