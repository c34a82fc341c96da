#include "models/slices.h"

#include <fmt/format.h>

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
  if (slices.uniform) {
    return Costs::Uniform(stages, slices.micro_batches, Divided(slices.table.front(), parts),
                          slices.common);
  }
  // Entries of one row: one, or one for each micro-batch.
  const size_t width = slices.table.size() / slices.rows;
  std::vector<StageCost> table;
  table.reserve(static_cast<size_t>(stages) * width);
  for (int stage = 0; stage < stages; ++stage) {
    const StageCost* row = slices.table.data() + static_cast<size_t>(stage / parts) * width;
    for (size_t i = 0; i < width; ++i) table.push_back(Divided(row[i], parts));
  }
  return Costs(stages, slices.micro_batches, std::move(table), slices.common);
}

}  // namespace spiritlevel
