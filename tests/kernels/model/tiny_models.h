// Small models of every kind, and their stages run by hand.
#pragma once

#include <gtest/gtest.h>
#include <cstdint>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/model/stage.h"
#include "tests/kernels/model/reference_model.h"

namespace spiritlevel {

struct TinyModel {
  std::string name;
  cpu::ModelShape shape;

  friend void PrintTo(const TinyModel& model, std::ostream* out) { *out << model.name; }
};

// Four layers each: gated and plain MLP, mixtures, both norms, biases, dropout, tied embeddings,
// one and several key heads, one and several sequences.
std::vector<TinyModel> TinyModels();
// The same, each also with recomputation and also in bf16.
std::vector<TinyModel> TinyModelsOfEveryStorage();
inline std::string NameOf(const testing::TestParamInfo<TinyModel>& model) {
  return model.param.name;
}

// Random tokens; some targets do not count.
ReferenceBatch RandomBatch(const cpu::ModelShape& shape, int64_t index);
cpu::MicroBatch ViewOf(const ReferenceBatch& batch, float loss_scale);

// Values under which every parameter matters: by name alone, whatever the cut.
void Enliven(cpu::ParameterStore* parameters);

// Bits of a tensor.
std::string BitsOf(const cpu::Tensor& tensor);

// A model in stages on one meter, each with one accumulator.
class TinyPipeline {
 public:
  // Also 1: one stage with everything.
  TinyPipeline(const cpu::ModelShape& shape, int stages);

  cpu::MemoryMeter& meter() { return *meter_; }
  int size() const { return static_cast<int>(stages_.size()); }
  cpu::Stage& stage(int i) { return *stages_[static_cast<size_t>(i)]; }
  cpu::GradientStore& sums(int i) { return *sums_[static_cast<size_t>(i)]; }

  // All stages up.
  struct InFlight {
    std::vector<cpu::Activation> activations;  // by stage
    double loss_sum = 0;
    std::string token_losses;  // bits; empty with recomputation
  };
  InFlight Forward(const ReferenceBatch& batch, float loss_scale);
  // All stages down; by stage what waits for W.
  std::vector<cpu::WeightState> InputGrads(InFlight flight);
  void FusedBackward(InFlight flight);

  // By name over all stages.
  NamedValues Parameters();
  NamedValues Gradients();
  std::map<std::string, std::string> GradientBits();

 private:
  std::unique_ptr<cpu::MemoryMeter> meter_;  // outlives its tensors
  std::vector<std::unique_ptr<cpu::Stage>> stages_;
  std::vector<std::unique_ptr<cpu::GradientStore>> sums_;
};

}  // namespace spiritlevel
