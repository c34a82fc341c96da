// Layers to pipeline stages. No layer vanishes: what does not add up to the configured number is
// refused, with both numbers and the splits that would do.
//
// The embedding is on the first stage; the final norm, the head and the loss are on the last.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "models/kernel.h"
#include "models/parameters.h"

namespace spiritlevel {

// By stage, how many layers it has.
using LayersPerStage = std::vector<int64_t>;

// The same number on every stage. Throws InputError unless `stages` divides `layers`.
LayersPerStage EvenStages(int64_t layers, int64_t stages);

// As Megatron derives it: each rank has layers / ranks, in chunks of `layers_per_chunk`, both
// rounded down, so that layers are lost where they do not divide. Throws InputError then.
LayersPerStage ChunkedStages(int64_t layers, int64_t ranks, int64_t layers_per_chunk);

// As even as can be: the first stages have one more where they do not divide.
LayersPerStage BalancedStages(int64_t layers, int64_t stages);

// How long a stage takes that begins at layer `first`; grows with `layers`.
using StageTime = std::function<TimeNs(size_t stage, int64_t first, int64_t layers)>;

// The first and the last stage need no layer, since they hold the embedding and the head; all
// others need one.
int64_t LeastLayers(size_t stage, size_t stages);

// Of all such ways to cut the layers, one in which the slowest stage takes least. Of several, one
// with the smallest sum of squared times, so that the other stages are even too; of those, the one
// with most layers on the first stages, since in 1F1B what stands before the slowest stage delays
// it. 32 layers and a head worth 2.4 on 4 stages: 9, 9, 8, 6.
LayersPerStage StagesByTime(int64_t layers, int64_t stages, const StageTime& time);

// Stages that lie on one rank, ascending; each stage in one of them.
using StageGroups = std::vector<std::vector<int>>;

// The same for ranks that hold several stages: first the busiest rank takes as little as can be
// (the sum of its stages), then the slowest stage, then the sum of squares is the smallest, then
// the first stages have most layers. Exact where the layers of a rank take the same, as they do but
// for windows of attention and recomputation by stage; elsewhere single layers are moved as long as
// that helps. 22 layers and a head worth 1.5 in a V on 4 ranks: stages 0 and 7 share the head.
LayersPerStage StagesOnRanks(int64_t layers, int64_t stages, const StageGroups& groups,
                             const StageTime& time);

// Both of these take up to half a second; what would take them longer is refused with this.
InputError TooManyToBalance(int64_t layers, int64_t stages);

// Throws InputError unless each stage can have a layer.
void CheckStageCount(int64_t layers, int64_t stages);

// `given` itself. Throws InputError unless it has an entry, none is negative, and they sum to
// `layers`.
LayersPerStage GivenStages(int64_t layers, LayersPerStage given);

struct StageParameters {
  int64_t embedding = 0;  // with learned positions
  int64_t layers = 0;
  int64_t head = 0;  // with the final norm; a copy of the embedding where tied and not beside it

  int64_t total() const { return embedding + layers + head; }

  friend bool operator==(const StageParameters&, const StageParameters&) = default;
};

// What a rank holds that has `stages` (ascending). A tied embedding is held twice unless first
// and last stage are on one rank.
StageParameters ParametersOn(const ParameterCount& count, bool tied_embeddings,
                             const LayersPerStage& layers, std::span<const int> stages);

// Each stage on a rank of its own.
std::vector<StageParameters> ParametersByStage(const ParameterCount& count, bool tied_embeddings,
                                               const LayersPerStage& layers);

// The index of the largest, the first of several.
size_t FullestStage(const std::vector<StageParameters>& stages);

// A pipeline goes at the pace of its slowest stage.
struct Balance {
  size_t slowest = 0;  // the first of several
  double share = 0;    // mean / largest: 1 where all are equal
  double speedup = 0;  // sum / largest: over one device that does all
};
Balance BalanceOf(std::span<const int64_t> stage_times);

// What training keeps for each parameter: the parameter and its gradient in the dtype, and float32
// for Adam's two moments and, unless the dtype is float32 itself, for a master copy. 16 in each.
struct TrainingBytes {
  Bytes parameter = 0;
  Bytes gradient = 0;
  Bytes optimizer = 0;

  Bytes total() const { return parameter + gradient + optimizer; }
};
TrainingBytes BytesPerParameter(DType dtype);

}  // namespace spiritlevel
