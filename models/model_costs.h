// From a model on a measured device to what each stage costs: the costs that everybody else types
// in.
//
//   const Architecture model = LoadHfConfig("config.json");
//   const ModelRun run{.sequence_length = 4096, .ranks = 8, .micro_batches = 32};
//   CostsForStages(SlicesFromModel(model, run, profile), 8);
//
// Stages are whole layers, and the first and last are unlike the others, so the costs of twice the
// stages are not these halved: make the slices anew for each number of stages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/architecture.h"
#include "models/device_profile.h"
#include "models/layer_ops.h"
#include "models/slices.h"
#include "models/stages.h"

namespace spiritlevel {

// What a stage does between F and W to keep less.
enum class Recompute : uint8_t {
  kNone,
  // F keeps only the input of each layer; B runs F again and leaves for W what W needs.
  kFull,
  // The same, and nothing of F's is kept for W either: W runs F once more.
  kFullAgainInW,
};

std::string_view Name(Recompute recompute);  // "none", "full", "full-again-in-w"
Recompute ParseRecompute(std::string_view name);

struct ModelRun {
  int64_t sequence_length = 0;
  int64_t micro_batch_size = 1;  // sequences
  DType dtype = DType::kBFloat16;
  bool stored_attention = false;
  bool norm_grads_in_w = false;

  int ranks = 1;
  int micro_batches = 1;
  // Empty: the same number on each of `stages`, or of `ranks` if that is 0.
  LayersPerStage layers_per_stage{};
  int stages = 0;
  std::vector<Recompute> recompute{};  // by stage; one for all; empty: kNone

  // Every rank computes beside others that share its memory and caches, as on a CPU.
  bool all_cores_busy = true;

  BlockShape shape() const {
    return {.sequence = sequence_length,
            .micro_batch = micro_batch_size,
            .dtype = dtype,
            .stored_attention = stored_attention,
            .norm_grads_in_w = norm_grads_in_w};
  }
};

// Throws InputError for a run that the model cannot be cut into.
LayersPerStage StagesOf(const Architecture& architecture, const ModelRun& run);

// Parameters, gradients and optimizer of a rank that holds `stages`, each with all of its layers.
Bytes StaticBytesOn(const Architecture& architecture, const ModelRun& run,
                    std::span<const int> stages);
std::vector<Bytes> StaticBytesByStage(const Architecture& architecture, const ModelRun& run);

// Bytes a stage keeps of one micro-batch.
struct StageMemory {
  Bytes after_forward = 0;     // until B
  Bytes after_input_grad = 0;  // until W; may be more
  Bytes rebuilt = 0;           // transient: the largest layer that B or W builds again
};
std::vector<StageMemory> StageMemories(const Architecture& architecture, const ModelRun& run);

// Times of one micro-batch on each stage, and all else that a schedule is played with. Rows are
// stages, and so is common.static_by_stage; tied embeddings count on each stage that holds them.
// Throws InputError for a profile of another dtype and for times longer than any pass can be.
ModelSlices SlicesFromModel(const Architecture& architecture, const ModelRun& run,
                            const DeviceProfile& profile);

}  // namespace spiritlevel
