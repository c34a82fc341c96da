// TrainingTask: a training run of a small transformer, told completely: model, cut into stages,
// data, micro-batches, replicas, optimizer. Two runs of one task have the same bits in all that
// docs/runtime.md says.
//
//   TrainingTask task{.shape = shape, .stages = cpu::EvenStages(shape, 4), .micro_batches = 8};
//   CheckTrainingTask(task);
//   MicroBatchData data = DataOf(task, /*iteration=*/0, /*index=*/3);
//
// Iterations count from 0, over all runs of a task: iteration i is the step that makes version
// i + 1 of the parameters.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "kernels/cpu/model/model_shape.h"
#include "kernels/cpu/optimizer.h"

namespace spiritlevel {

struct TrainingTask {
  cpu::ModelShape shape{};  // with storage, recomputation, and the seed of parameters and dropout
  // In model order: the first has the embedding, the last the head. A schedule that is run has as
  // many stages.
  std::vector<cpu::StageRange> stages{};
  int micro_batches = 1;  // an iteration, of each replica
  int replicas = 1;       // of data parallelism
  // Each replica keeps the optimizer's state of a share of the parameters, and steps that share.
  bool sharded_optimizer = false;
  // Of gradients that are summed over replicas as one: blocks of a stage, from its last to its
  // first, are put together until they have so many. 0: each block by itself.
  Bytes bucket_bytes = 0;

  cpu::AdamW adamw{};        // its rate is what warm-up ends with
  int64_t warmup_steps = 0;  // over which the rate rises in equal steps
  double clip_norm = 1;      // 0: no clipping. Where no norm is formed (no tail), none either

  uint64_t data_seed = 1;
  int64_t first_sample = 0;  // of the data, in iteration 0

  int num_stages() const { return static_cast<int>(stages.size()); }
  // Micro-batches are counted over replicas: those of replica r begin with r * micro_batches.
  int all_micro_batches() const { return replicas * micro_batches; }
  int64_t samples_per_step() const { return all_micro_batches() * shape.sequences; }
  int64_t tokens_per_step() const { return all_micro_batches() * shape.tokens(); }
};

// Throws InputError, naming the field, unless it can be run.
void CheckTrainingTask(const TrainingTask& task);

// The learning rate of an iteration.
float RateOf(const TrainingTask& task, int64_t iteration);

// How many samples have been consumed once an iteration is over.
int64_t SamplesAfter(const TrainingTask& task, int64_t iteration);

struct MicroBatchData {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  // the token behind each
};

// Sample k of a data seed is the same whoever asks for it, so a run that is continued with other
// numbers of micro-batches or replicas goes on in the same stream.
MicroBatchData DataOf(const TrainingTask& task, int64_t iteration, int index);

// The place of each parameter in the model, over all stages.
class ParameterNumbers {
 public:
  explicit ParameterNumbers(const TrainingTask& task);

  int size() const { return static_cast<int>(names_.size()); }
  int first_of(int stage) const { return first_[static_cast<size_t>(stage)]; }
  int end_of(int stage) const { return first_[static_cast<size_t>(stage) + 1]; }
  int stage_of(int number) const;
  const std::string& name(int number) const { return names_[static_cast<size_t>(number)]; }
  // False of the second copy of a tied embedding, whose gradient is the first one's.
  bool counts_in_norm(int number) const { return number != tied_copy_; }
  // Both copies of a tied embedding; -1 without one.
  int embedding() const { return embedding_; }
  int tied_copy() const { return tied_copy_; }

 private:
  std::vector<std::string> names_;
  std::vector<int> first_;
  int embedding_ = -1;
  int tied_copy_ = -1;
};

// Blocks [first, last) of a stage.
using BlockRun = std::pair<int, int>;

// The gradient buckets of a stage, in the order in which a backward fills them: from its last block
// down. Only replicas need them; without any there is one.
std::vector<BlockRun> BucketsOf(const TrainingTask& task, int stage);

// Which parameters of a stage a replica steps, ascending. All, unless the optimizer is sharded.
std::vector<int> OwnedBy(const TrainingTask& task, int stage, int replica);

}  // namespace spiritlevel
