// From a model on a measured device to what each stage costs: the costs that everybody else types
// in.
//
//   const Architecture model = LoadHfConfig("config.json");
//   const ModelRun run{.sequence_length = 4096, .ranks = 8, .micro_batches = 32, .stages = 16};
//   CostsFromModel(model, run, profile);
//
// Stages are whole layers, and the first and last are unlike the others, so the costs of twice the
// stages are not these halved: they are made anew for each number of stages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/architecture.h"
#include "models/device_profile.h"
#include "models/layer_ops.h"
#include "models/stage_blocks.h"
#include "models/stages.h"
#include "sim/costs.h"

namespace spiritlevel {

// As PyTorch's DistributedDataParallel has it.
inline constexpr Bytes kDefaultBucketBytes = Bytes{25} << 20;

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
  std::vector<Recompute> recompute{};  // by stage; one for all; empty: kNothing

  // Replicas of the pipeline, whose gradients are summed in buckets of this many bytes at most.
  int data_parallel = 1;
  Bytes bucket_bytes = kDefaultBucketBytes;

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

// Whole layers on `run.stages` (or ranks), so that F, B and W of the busiest rank and then of the
// slowest stage, embedding and head included, take as little as can be on the device; see
// StagesOnRanks(). Without groups each stage is on a rank of its own.
LayersPerStage BalancedSplit(const Architecture& architecture, const ModelRun& run,
                             const DeviceProfile& profile, const StageGroups& groups = {});

// Parameters, gradients and optimizer of a rank that holds `stages`, each with all of its layers.
Bytes StaticBytesOn(const Architecture& architecture, const ModelRun& run,
                    std::span<const int> stages);
std::vector<Bytes> StaticBytesByStage(const Architecture& architecture, const ModelRun& run);

std::vector<StageMemory> StageMemories(const Architecture& architecture, const ModelRun& run);

// Times of one micro-batch on each stage, and all else that a schedule is played with. Tied
// embeddings count on each stage that holds them. Throws InputError for a profile of another dtype
// and for times longer than any pass can be.
Costs CostsFromModel(const Architecture& architecture, const ModelRun& run,
                     const DeviceProfile& profile);

// Halves rounded up. Throws InputError, naming `what`, above kMaxPassTime.
TimeNs RoundedTime(double ns, std::string_view what);

// What a prediction from a model and a profile leaves out, a line each; docs/models.md.
std::span<const std::string_view> NotModelled();

}  // namespace spiritlevel
