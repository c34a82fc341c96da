// Checkpoints: what a training run is made of between two iterations, and how it outlives the
// process.
//
//   TrainingState state = ...;                       // at a drain point, all of it validated
//   CommitCheckpoint(folder, {RankShard{0, Pack(state.scalars, first_half)},
//                             RankShard{1, Pack(state.scalars, second_half)}});
//   TrainingState again = LoadCheckpoint(folder);    // also in another split of the model
//
// Parameters and moments are kept by name, so nothing depends on how many ranks or micro-batches
// there were. Each rank packs a shard of its own; a checkpoint is committed only if all shards were
// packed at the same scalars, that is by ranks that agree on where they are.
//
// Written aside: first the shards, under names made of their contents, then the manifest that names
// them, which is replaced in one step. Whenever the process dies, the manifest that is there names
// shards that are there, whole. What no manifest names is removed by the next commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/model/stage_optimizer.h"

namespace spiritlevel {

// What all ranks hold alike. A rollback takes it back with the parameters.
struct TrainingScalars {
  int64_t iteration = 0;  // the next to run
  int64_t step = 0;       // optimizer steps that were made; an overflow makes none
  int64_t consumed_samples = 0;
  float rate = 0;  // of the next step
  float loss_scale = 1;
  int64_t good_steps = 0;  // since the last overflow

  friend bool operator==(const TrainingScalars&, const TrainingScalars&) = default;
};

// Bits of one parameter and all that its optimizer keeps. `master` is empty in fp32.
struct ParameterState {
  cpu::DType storage = cpu::DType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::string value{};
  std::string first_moment{};
  std::string second_moment{};
  std::string master{};

  friend bool operator==(const ParameterState&, const ParameterState&) = default;
};

using ParameterStates = std::map<std::string, ParameterState>;

struct TrainingState {
  TrainingScalars scalars{};
  ParameterStates parameters{};

  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

// What a stage has of the parameters that `optimizer` owns, and back. `Put` throws InputError,
// naming the parameter, where the state has none of that name, shape and storage.
void CollectStates(const cpu::ParameterStore& parameters, cpu::StageOptimizer& optimizer,
                   ParameterStates* states);
void PutStates(const TrainingState& state, cpu::ParameterStore* parameters,
               cpu::StageOptimizer* optimizer);

// One rank's part as bytes, with a checksum. Unpack throws InputError at anything else.
std::string Pack(const TrainingScalars& scalars, const ParameterStates& parameters);
TrainingState Unpack(std::string_view bytes);

// Puts parts together. Throws InvariantError unless all were packed at the same scalars, and where
// two hold the same parameter, as the two copies of a DualPipe stage do, they hold the same bits.
TrainingState Merge(std::span<const std::string> parts);

struct RankShard {
  int rank = 0;
  std::string bytes{};  // Pack()'s
};

// Replaces the checkpoint in `folder`, which is made if need be. Throws InvariantError unless the
// ranks agree, InputError where it cannot be written; then what stood there still does.
void CommitCheckpoint(const std::filesystem::path& folder, const std::vector<RankShard>& shards);

bool HasCheckpoint(const std::filesystem::path& folder);

// Throws InputError, naming the file, where there is none, or bytes have changed.
TrainingState LoadCheckpoint(const std::filesystem::path& folder);

}  // namespace spiritlevel
