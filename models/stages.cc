#include "models/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

std::string List(const LayersPerStage& layers) { return fmt::format("{}", fmt::join(layers, ",")); }

// Those that are nearest to `wanted`, ascending.
std::vector<int64_t> DivisorsNear(int64_t number, int64_t wanted) {
  constexpr size_t kMost = 4;
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  std::stable_sort(divisors.begin(), divisors.end(), [wanted](int64_t a, int64_t b) {
    return std::abs(a - wanted) < std::abs(b - wanted);
  });
  divisors.resize(std::min(divisors.size(), kMost));
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

// "layers per stage 8,8,7,7"; a list of hundreds helps nobody.
std::string BalancedChoice(int64_t layers, int64_t stages) {
  constexpr int64_t kMostShown = 32;
  if (stages > layers) return fmt::format("at most {} stages", layers);
  if (stages > kMostShown) {
    return fmt::format("{} or {} layers per stage", layers / stages, layers / stages + 1);
  }
  return fmt::format("layers per stage {}", List(BalancedStages(layers, stages)));
}

InputError LostLayers(int64_t layers, int64_t built, const std::string& how, std::string way_out) {
  return InputError(fmt::format("layers: {} are configured, but {} make {}", layers, how, built),
                    std::move(way_out));
}

}  // namespace

void CheckStageCount(int64_t layers, int64_t stages) {
  SPIRITLEVEL_CHECK(layers > 0, "a model has layers");
  if (stages > 0 && stages <= layers) return;
  throw InputError(fmt::format("stages: {} layers cannot fill {} stages", layers, stages),
                   fmt::format("use 1 to {}", layers));
}

LayersPerStage BalancedStages(int64_t layers, int64_t stages) {
  CheckStageCount(layers, stages);
  LayersPerStage split(static_cast<size_t>(stages), layers / stages);
  std::fill_n(split.begin(), layers % stages, layers / stages + 1);
  return split;
}

LayersPerStage EvenStages(int64_t layers, int64_t stages) {
  CheckStageCount(layers, stages);
  if (layers % stages == 0) return BalancedStages(layers, stages);
  const int64_t each = layers / stages;
  throw LostLayers(
      layers, stages * each, fmt::format("{} stages of {}", stages, each),
      fmt::format("use {} stages, or {}", fmt::join(DivisorsNear(layers, stages), ", "),
                  BalancedChoice(layers, stages)));
}

LayersPerStage ChunkedStages(int64_t layers, int64_t ranks, int64_t layers_per_chunk) {
  CheckStageCount(layers, ranks);
  const int64_t of_rank = layers / ranks;
  if (layers_per_chunk < 1 || layers_per_chunk > of_rank) {
    throw InputError(
        fmt::format("layers per chunk: {} is not between 1 and the {} of a rank", layers_per_chunk,
                    of_rank),
        fmt::format("use {}", fmt::join(DivisorsNear(of_rank, layers_per_chunk), ", ")));
  }
  const int64_t chunks = of_rank / layers_per_chunk;
  const int64_t built = ranks * chunks * layers_per_chunk;
  if (built == layers) {
    return LayersPerStage(static_cast<size_t>(ranks * chunks), layers_per_chunk);
  }
  const std::string how =
      fmt::format("{} ranks x {} chunks x {} layers", ranks, chunks, layers_per_chunk);
  if (layers % ranks != 0) {
    throw LostLayers(
        layers, built, how,
        fmt::format("use {} ranks, or {}", fmt::join(DivisorsNear(layers, ranks), ", "),
                    BalancedChoice(layers, ranks)));
  }
  throw LostLayers(layers, built, how,
                   fmt::format("use {} layers a chunk",
                               fmt::join(DivisorsNear(of_rank, layers_per_chunk), ", ")));
}

LayersPerStage GivenStages(int64_t layers, LayersPerStage given) {
  if (given.empty()) throw InputError("layers per stage: the list is empty", "name every stage");
  for (const int64_t count : given) {
    if (count < 0) {
      throw InputError(fmt::format("layers per stage: {} is negative", count), "use 0 or more");
    }
  }
  int64_t sum = 0;
  for (const int64_t count : given) {
    if (count > layers) {
      throw InputError(
          fmt::format("layers per stage: {} are more than the {} of the model", count, layers),
          fmt::format("use 0 to {}", layers));
    }
    sum += count;
  }
  if (sum == layers) return given;
  const auto stages = static_cast<int64_t>(given.size());
  throw LostLayers(layers, sum, "the layers per stage", "use " + BalancedChoice(layers, stages));
}

StageParameters ParametersOn(const ParameterCount& count, bool tied_embeddings,
                             const LayersPerStage& layers, std::span<const int> stages) {
  const auto holds = [stages](int stage) {
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
  };
  const bool first = holds(0);
  const bool last = holds(static_cast<int>(layers.size()) - 1);
  StageParameters held;
  for (const int stage : stages)
    held.layers += layers[static_cast<size_t>(stage)] * count.per_layer();
  if (first) held.embedding = count.embedding + count.positions;
  if (last) {
    const int64_t copy = tied_embeddings && !first ? count.embedding : 0;
    held.head = count.final_norm + count.head + copy;
  }
  return held;
}

std::vector<StageParameters> ParametersByStage(const ParameterCount& count, bool tied_embeddings,
                                               const LayersPerStage& layers) {
  std::vector<StageParameters> stages;
  for (int stage = 0; stage < static_cast<int>(layers.size()); ++stage) {
    stages.push_back(ParametersOn(count, tied_embeddings, layers, std::span(&stage, 1)));
  }
  return stages;
}

size_t FullestStage(const std::vector<StageParameters>& stages) {
  SPIRITLEVEL_CHECK(!stages.empty(), "a pipeline has stages");
  const auto fuller = [](const StageParameters& a, const StageParameters& b) {
    return a.total() < b.total();
  };
  return static_cast<size_t>(std::max_element(stages.begin(), stages.end(), fuller) -
                             stages.begin());
}

Balance BalanceOf(std::span<const int64_t> stage_times) {
  SPIRITLEVEL_CHECK(!stage_times.empty(), "a pipeline has stages");
  const auto slowest = std::max_element(stage_times.begin(), stage_times.end());
  SPIRITLEVEL_CHECK(*slowest > 0, "some stage takes time");
  const double sum = std::accumulate(stage_times.begin(), stage_times.end(), 0.0);
  Balance balance;
  balance.slowest = static_cast<size_t>(slowest - stage_times.begin());
  balance.speedup = sum / static_cast<double>(*slowest);
  balance.share = balance.speedup / static_cast<double>(stage_times.size());
  return balance;
}

TrainingBytes BytesPerParameter(DType dtype) {
  const Bytes moments = 2 * SizeOf(DType::kFloat32);
  const Bytes master = dtype == DType::kFloat32 ? 0 : SizeOf(DType::kFloat32);
  return {.parameter = SizeOf(dtype), .gradient = SizeOf(dtype), .optimizer = master + moments};
}

}  // namespace spiritlevel
