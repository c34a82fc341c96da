#include "sim/costs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spiritlevel {

Costs Costs::Uniform(int stages, int micro_batches, const StageCost& cost) {
  return Uniform(stages, micro_batches, cost, Common{});
}

Costs Costs::Uniform(int stages, int micro_batches, const StageCost& cost, const Common& common) {
  return Costs(stages, micro_batches, std::vector<StageCost>(static_cast<size_t>(stages), cost),
               common);
}

Costs::Costs(int stages, int micro_batches, std::vector<StageCost> table, const Common& common)
    : num_stages_(stages),
      num_micro_batches_(micro_batches),
      table_(std::move(table)),
      common_(common) {
  const size_t s = static_cast<size_t>(stages);
  const size_t m = static_cast<size_t>(micro_batches);
  SPIRITLEVEL_CHECK(table_.size() == s || table_.size() == s * m,
                    "costs are given for each stage, or for each stage and micro-batch");
  SPIRITLEVEL_CHECK(common_.static_by_stage.empty() || common_.static_by_stage.size() == s,
                    "static memory is given for each stage, or for all alike");
  const auto by_stage_or_none = [s](const auto& list) { return list.empty() || list.size() == s; };
  SPIRITLEVEL_CHECK(by_stage_or_none(common_.optimizer_by_stage) &&
                        by_stage_or_none(common_.gradients.buckets) &&
                        by_stage_or_none(common_.gradients.twins),
                    "optimizer steps and sums of gradients are given for each stage, or not");
  for (const std::vector<GradientBucket>& stage : common_.gradients.buckets) {
    SPIRITLEVEL_CHECK(
        !stage.empty() && std::all_of(stage.begin(), stage.end(),
                                      [](const GradientBucket& b) { return b.share >= 1; }),
        "every stage has a gradient bucket, and every bucket a share of it");
  }
  if (table_.size() != s) {
    stage_stride_ = m;
    micro_batch_stride_ = 1;
  }
  const int rows = varies_by_micro_batch() ? micro_batches : 1;
  for (int stage = 1; stage < stages; ++stage) {
    for (int i = 0; i < rows; ++i) stages_are_equal_ &= of(stage, i) == of(0, i);
  }
  sums_.assign(static_cast<size_t>(kNumPasses * rows), 0);
  for (int pass = 0; pass < kNumPasses; ++pass) {
    for (int i = 0; i < rows; ++i) {
      TimeNs& sum = sums_[static_cast<size_t>(pass * rows + i)];
      for (int stage = 0; stage < stages; ++stage) {
        sum += of(stage, i).duration(static_cast<Pass>(pass));
      }
    }
  }
}

TimeNs Costs::overlapped_duration(const Op& first, const Op& second) const {
  const StageCost& a = of(first.stage, first.micro_batch);
  const StageCost& b = of(second.stage, second.micro_batch);
  const auto saving = [](const StageCost& c) {
    return c.forward + c.fused_backward - c.overlapped;
  };
  const TimeNs in_sequence = a.duration(first.pass) + b.duration(second.pass);
  return DivideHalfUp(2 * in_sequence - saving(a) - saving(b), 2);
}

MemoryByCategory Costs::static_memory(std::span<const int> stages, int ranks) const {
  MemoryByCategory sum{};
  if (!common_.static_by_stage.empty()) {
    const bool ends = HoldsBothEnds(stages);
    for (size_t i = 0; i < sum.size(); ++i) {
      for (const int stage : stages) sum[i] += common_.static_by_stage[stage][i];
      if (ends) sum[i] -= common_.tied_static[i];
    }
    return sum;
  }
  const auto held = static_cast<Int128>(stages.size());
  const Int128 all = static_cast<Int128>(common_.static_bytes) * ranks * held;
  sum[static_cast<size_t>(MemoryCategory::kParameters)] =
      static_cast<Bytes>((2 * all + num_stages_) / (2 * num_stages_));
  return sum;
}

TimeNs Costs::optimizer(std::span<const int> stages) const {
  TimeNs sum = common_.optimizer;
  if (common_.optimizer_by_stage.empty()) return sum;
  for (const int stage : stages) sum += common_.optimizer_by_stage[stage];
  return HoldsBothEnds(stages) ? sum - common_.tied_optimizer : sum;
}

bool Costs::HoldsBothEnds(std::span<const int> stages) const {
  return stages.size() > 1 && stages.front() == 0 && stages.back() == num_stages_ - 1;
}

TimeNs Costs::sum_over_stages(Pass pass, int micro_batch) const {
  const size_t rows = varies_by_micro_batch() ? static_cast<size_t>(num_micro_batches_) : 1;
  const size_t row = varies_by_micro_batch() ? static_cast<size_t>(micro_batch) : 0;
  return sums_[static_cast<size_t>(pass) * rows + row];
}

}  // namespace spiritlevel
