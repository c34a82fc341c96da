#include "models/slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

StageCost Divided(const StageCost& slice, int parts) {
  const auto share = [parts](int64_t amount) { return DivideHalfUp(amount, parts); };
  StageCost cost;
  cost.forward = share(slice.forward);
  cost.input_grad = share(slice.input_grad);
  cost.weight_grad = share(slice.weight_grad);
  cost.fused_backward = slice.fused_backward == kDerived ? cost.input_grad + cost.weight_grad
                                                         : share(slice.fused_backward);
  cost.overlapped =
      slice.overlapped == kDerived ? cost.forward + cost.fused_backward : share(slice.overlapped);
  cost.activation = share(slice.activation);
  cost.weight_state = share(slice.weight_state);
  return cost;
}

// The share of one of `stages` stages in what `ranks` ranks take together. May pass 64 bits on the
// way.
int64_t OfOneStage(int64_t of_rank, int ranks, int stages) {
  const Int128 doubled = 2 * static_cast<Int128>(of_rank) * ranks + stages;
  return static_cast<int64_t>(doubled / (2 * stages));
}

GradientSums SumsFor(const ModelSlices& slices, int stages) {
  const SharedSums& given = slices.sums;
  const auto count = static_cast<size_t>(stages);
  const auto of_stage = [&](int64_t of_rank) { return OfOneStage(of_rank, slices.ranks, stages); };
  GradientSums sums;
  if (given.reduction > 0) {
    const int64_t buckets = std::max<int64_t>(1, of_stage(given.buckets));
    const GradientBucket bucket{
        .sum = {.duration = DivideHalfUp(of_stage(given.reduction), buckets)}};
    sums.buckets.assign(count, std::vector<GradientBucket>(static_cast<size_t>(buckets), bucket));
  }
  if (given.twin > 0) sums.twins.assign(count, {.duration = of_stage(given.twin)});
  if (given.tied_exchange > 0) sums.tied = {{.duration = given.tied_exchange}};
  return sums;
}

InputError CannotCut(const ModelSlices& slices, int stages) {
  const int rows = slices.rows;
  if (slices.uniform) {
    return InputError(
        fmt::format("one rank's share on {} ranks cannot be cut into {} stages", rows, stages),
        fmt::format("use a schedule with {}, {}, ... stages", rows, 2 * rows));
  }
  return InputError(fmt::format("{} rows of costs cannot be cut into {} stages", rows, stages),
                    fmt::format("give a row for each of the {} stages, or use a schedule with {}, "
                                "{}, ... stages",
                                stages, rows, 2 * rows));
}

}  // namespace

Costs CostsForStages(const ModelSlices& slices, int stages) {
  SPIRITLEVEL_CHECK(slices.rows > 0 && !slices.table.empty(), "a model has slices");
  if (stages <= 0 || stages % slices.rows != 0) throw CannotCut(slices, stages);
  const int parts = stages / slices.rows;
  SPIRITLEVEL_CHECK(slices.common.gradients.empty(), "sums of gradients are given as shares");
  Costs::Common common = slices.common;
  common.gradients = SumsFor(slices, stages);
  if (slices.uniform) {
    return Costs::Uniform(stages, slices.micro_batches, Divided(slices.table.front(), parts),
                          common);
  }
  // Entries of one row: one, or one for each micro-batch.
  const size_t width = slices.table.size() / slices.rows;
  std::vector<StageCost> table;
  table.reserve(static_cast<size_t>(stages) * width);
  for (int stage = 0; stage < stages; ++stage) {
    const StageCost* row = slices.table.data() + static_cast<size_t>(stage / parts) * width;
    for (size_t i = 0; i < width; ++i) table.push_back(Divided(row[i], parts));
  }
  return Costs(stages, slices.micro_batches, std::move(table), common);
}

}  // namespace spiritlevel
