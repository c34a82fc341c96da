// What training has come to, iteration by iteration: for comparing runs to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "kernels/cpu/model/memory_meter.h"
#include "verify/model_plan.h"
#include "verify/payload.h"

namespace spiritlevel {

// Behind the step. bf16 values are widened.
struct ParameterRecord {
  int number = 0;                 // ParameterNumbers'
  std::vector<float> gradient{};  // what the step saw, before clipping
  std::vector<float> value{};
  // Empty where another replica owns them; of fp32 parameters `master` always.
  std::vector<float> first_moment{};
  std::vector<float> second_moment{};
  std::vector<float> master{};
};

struct LossRecord {
  int micro_batch = 0;  // counted over replicas
  double sum = 0;       // over its tokens
};

struct StepRecord {
  int64_t step = 0;             // the task's iteration
  int64_t optimizer_steps = 0;  // behind it
  int64_t consumed_samples = 0;
  float rate = 0;
  double norm = 0;  // 0 where none was formed
  float clip = 1;
  std::vector<LossRecord> losses{};           // by micro-batch
  std::vector<ParameterRecord> parameters{};  // by number; empty where not recorded
};

// By step.
using TrainingRecord = std::vector<StepRecord>;

// Of one rank's memory. Peaks by use are of the instants between nodes: inside a pass bytes change
// their use as it goes along.
struct MemoryRecord {
  Bytes peak = 0;                 // as in the timeline: without what is handed over
  cpu::BytesByUse peak_by_use{};  // each at its own instant; kCommunication is 0
  Bytes most_handed_over = 0;     // results on their way, and contributions to sums
  Bytes most_held = 0;            // of the system's memory, spare blocks included
  int most_waiting_for_b = 0;     // micro-batches, of all the rank's stages
  int most_waiting_for_w = 0;
};

// What Finish() of a ModelWork returns.
struct RankRecord {
  TrainingRecord steps;
  MemoryRecord memory;
};
Payload Serialize(const RankRecord& record);
// Throws InvariantError where the bytes are no record.
RankRecord ParseRankRecord(std::span<const std::byte> bytes);

// What all ranks of all replicas say together. Throws std::runtime_error where two of them do not
// have the same bits of what both have.
TrainingRecord RecordOf(const TrainingTask& task, std::span<const Payload> results);

// Empty where two records have the same bits; else what differs first in each step, by name:
//   step 1: gradient of layers.3.mlp.up.weight differs in 12 of 4096 entries, first [17]: 0.5 and
//   0.25
std::string Difference(const TrainingTask& task, const TrainingRecord& a, const TrainingRecord& b);

}  // namespace spiritlevel
