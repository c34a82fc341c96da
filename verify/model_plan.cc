#include "verify/model_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/model/philox.h"

namespace spiritlevel {
namespace {

void Require(bool fulfilled, std::string what, std::string way_out) {
  if (!fulfilled) throw InputError(std::move(what), std::move(way_out));
}

void CheckStages(const TrainingTask& task) {
  Require(!task.stages.empty(), "stages: there are none", "a model has at least one");
  int64_t next_layer = 0;
  for (int s = 0; s < task.num_stages(); ++s) {
    const cpu::StageRange& range = task.stages[static_cast<size_t>(s)];
    cpu::CheckStageRange(task.shape, range);
    Require(range.first_layer == next_layer,
            "stages: stage " + std::to_string(s) + " does not begin where the one before ends",
            "layer " + std::to_string(next_layer) + " comes next");
    Require(range.embedding == (s == 0) && range.head == (s + 1 == task.num_stages()),
            "stages: the embedding is in the first stage, the head in the last",
            "EvenStages() cuts them so");
    next_layer += range.layers;
  }
  Require(next_layer == task.shape.layers,
          "stages: " + std::to_string(next_layer) + " of " + std::to_string(task.shape.layers) +
              " layers are in stages",
          "each layer is in one");
}

}  // namespace

void CheckTrainingTask(const TrainingTask& task) {
  cpu::CheckModelShape(task.shape);
  CheckStages(task);
  Require(task.micro_batches >= 1, "micro_batches: there are none", "use 1 or more");
  Require(task.replicas >= 1, "replicas: there are none", "1 is no data parallelism");
  Require(task.bucket_bytes >= 0, "bucket_bytes: below 0", "0 makes each block a bucket");
  Require(task.warmup_steps >= 0 && task.first_sample >= 0, "warmup_steps, first_sample: below 0",
          "both count from 0");
  Require(std::isfinite(task.clip_norm) && task.clip_norm >= 0, "clip_norm: not a number from 0 up",
          "0 for no clipping");
}

// In double, then rounded once: the same on every rank.
float RateOf(const TrainingTask& task, int64_t iteration) {
  const double full = task.adamw.rate;
  if (iteration + 1 >= task.warmup_steps) return task.adamw.rate;
  return static_cast<float>(full * static_cast<double>(iteration + 1) /
                            static_cast<double>(task.warmup_steps));
}

int64_t SamplesAfter(const TrainingTask& task, int64_t iteration) {
  return task.first_sample + (iteration + 1) * task.samples_per_step();
}

MicroBatchData DataOf(const TrainingTask& task, int64_t iteration, int index) {
  const int64_t first =
      task.first_sample + iteration * task.samples_per_step() + index * task.shape.sequences;
  const int64_t sequence = task.shape.sequence;
  const double words = static_cast<double>(task.shape.vocabulary);
  MicroBatchData data;
  for (int64_t sample = first; sample < first + task.shape.sequences; ++sample) {
    cpu::PhiloxCounter random{};
    for (int64_t i = 0; i <= sequence; ++i) {
      if (i % 4 == 0) {
        random = cpu::Philox({static_cast<uint32_t>(i / 4), 0x5A3B1E77,
                              static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)},
                             cpu::KeyOf(task.data_seed));
      }
      // Squared, so that some words are frequent, as in any language, and there is something to
      // learn.
      const double uniform = random[static_cast<size_t>(i % 4)] * 0x1p-32;
      const auto word = static_cast<int32_t>(uniform * uniform * words);
      if (i < sequence) data.tokens.push_back(word);
      if (i > 0) data.targets.push_back(word);
    }
  }
  return data;
}

ParameterNumbers::ParameterNumbers(const TrainingTask& task) {
  for (const cpu::StageRange& range : task.stages) {
    first_.push_back(size());
    for (cpu::ParameterInfo& info : cpu::ParametersOf(task.shape, range)) {
      names_.push_back(std::move(info.name));
    }
  }
  first_.push_back(size());
  if (!task.shape.tied_embeddings) return;
  const auto place = [&](const char* name) {
    return static_cast<int>(std::ranges::find(names_, name) - names_.begin());
  };
  embedding_ = place("embedding.weight");
  tied_copy_ = place("head.weight");
  SPIRITLEVEL_CHECK(embedding_ < size() && tied_copy_ < size(), "a tied embedding has two ends");
}

int ParameterNumbers::stage_of(int number) const {
  return static_cast<int>(std::ranges::upper_bound(first_, number) - first_.begin()) - 1;
}

std::vector<BlockRun> BucketsOf(const TrainingTask& task, int stage) {
  const cpu::StageRange& range = task.stages[static_cast<size_t>(stage)];
  if (task.replicas == 1) return {{0, range.num_blocks()}};
  std::vector<Bytes> bytes(static_cast<size_t>(range.num_blocks()), 0);
  for (const cpu::ParameterInfo& info : cpu::ParametersOf(task.shape, range)) {
    bytes[static_cast<size_t>(info.block)] += info.size() * Bytes{sizeof(float)};
  }
  std::vector<BlockRun> buckets;
  int end = range.num_blocks();
  Bytes sum = 0;
  for (int block = end - 1; block >= 0; --block) {
    sum += bytes[static_cast<size_t>(block)];
    if (sum < task.bucket_bytes && block > 0) continue;
    buckets.emplace_back(block, end);
    end = block;
    sum = 0;
  }
  return buckets;
}

std::vector<int> OwnedBy(const TrainingTask& task, int stage, int replica) {
  const std::vector<cpu::ParameterInfo> infos =
      cpu::ParametersOf(task.shape, task.stages[static_cast<size_t>(stage)]);
  if (!task.sharded_optimizer) {
    std::vector<int> all(infos.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  // Each to whoever has least so far, the first of equals.
  std::vector<int64_t> sizes(static_cast<size_t>(task.replicas), 0);
  std::vector<int> owned;
  for (size_t i = 0; i < infos.size(); ++i) {
    const auto least = std::ranges::min_element(sizes);
    *least += infos[i].size();
    if (least - sizes.begin() == replica) owned.push_back(static_cast<int>(i));
  }
  return owned;
}

}  // namespace spiritlevel
