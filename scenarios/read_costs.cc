#include "scenarios/read_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scenarios/shared_costs.h"

namespace spiritlevel {
namespace {

// What a message gives replaces what `cost` says. Uniform, Row and MicroBatch name these fields
// alike.
template <typename Message>
void Overlay(const Message& message, const Place& place, const Judge& judge, StageCost* cost) {
  const auto time = [&](const char* field, double us) { return judge.Time({place, field}, us); };
  const auto size = [&](const char* field, int64_t b) { return judge.Size({place, field}, b); };
  if (message.has_forward_us()) cost->forward = time("forward_us", message.forward_us());
  if (message.has_input_grad_us()) {
    cost->input_grad = time("input_grad_us", message.input_grad_us());
  }
  if (message.has_weight_grad_us()) {
    cost->weight_grad = time("weight_grad_us", message.weight_grad_us());
  }
  if (message.has_fused_backward_us()) {
    cost->fused_backward = time("fused_backward_us", message.fused_backward_us());
  }
  if (message.has_overlapped_us()) {
    cost->overlapped = time("overlapped_us", message.overlapped_us());
  }
  if (message.has_activation_bytes()) {
    cost->activation = size("activation_bytes", message.activation_bytes());
  }
  if (message.has_weight_state_bytes()) {
    cost->weight_state = size("weight_state_bytes", message.weight_state_bytes());
  }
}

// Two ops that run together take at least as long as the longer of them.
void RefuseTooMuchOverlap(const StageCost& cost, const Place& place, const Judge& judge) {
  if (cost.overlapped == kDerived) return;
  const TimeNs backward =
      cost.fused_backward == kDerived ? cost.input_grad + cost.weight_grad : cost.fused_backward;
  const TimeNs longer = std::max(cost.forward, backward);
  if (cost.overlapped >= longer) return;
  judge.Refuse({place, "overlapped_us"},
               fmt::format("{} is less than the longer of its parts, {}",
                           FormatTime(cost.overlapped), FormatTime(longer)),
               "it is the time of a forward and a whole backward executed as one overlapped op");
}

// Of a uniform form or a row: the three passes must be there.
template <typename Message>
StageCost Required(const Message& message, const Place& place, const Judge& judge) {
  if (!message.has_forward_us()) {
    judge.RefuseMissing({place, "forward_us"}, "forward_us: 18522");
  }
  if (!message.has_input_grad_us()) {
    judge.RefuseMissing({place, "input_grad_us"}, "input_grad_us: 18086");
  }
  if (!message.has_weight_grad_us()) {
    judge.RefuseMissing({place, "weight_grad_us"},
                        "weight_grad_us: 9337 (0 if input_grad_us holds the whole backward)");
  }
  StageCost cost;
  cost.fused_backward = kDerived;
  cost.overlapped = kDerived;
  Overlay(message, place, judge, &cost);
  RefuseTooMuchOverlap(cost, place, judge);
  return cost;
}

// A micro-batch that changes a pass while its row states a sum of passes would keep the old sum,
// and so be a different model from the one that was meant.
void RefuseStaleSums(const proto::Row& row, const proto::MicroBatch& change, const Place& place,
                     const Judge& judge) {
  const bool backward = change.has_input_grad_us() || change.has_weight_grad_us();
  if (backward && row.has_fused_backward_us() && !change.has_fused_backward_us()) {
    judge.Refuse({place, "fused_backward_us"},
                 "is missing: the row gives it for passes that this micro-batch changes",
                 "give fused_backward_us here too, or take it out of the row");
  }
  const bool any = backward || change.has_forward_us() || change.has_fused_backward_us();
  if (any && row.has_overlapped_us() && !change.has_overlapped_us()) {
    judge.Refuse({place, "overlapped_us"},
                 "is missing: the row gives it for passes that this micro-batch changes",
                 "give overlapped_us here too, or take it out of the row");
  }
}

int CheckedIndex(const proto::MicroBatch& change, const Place& place, int micro_batches,
                 std::vector<bool>* seen, const Judge& judge) {
  const Place at(place, "index");
  if (!change.has_index()) judge.RefuseMissing(at, "index: 0 for the first micro-batch");
  const int index = change.index();
  if (index < 0 || index >= micro_batches) {
    judge.Refuse(at, fmt::format("there is no micro-batch {}", index),
                 fmt::format("they are counted from 0 to {}", micro_batches - 1));
  }
  if ((*seen)[index]) {
    judge.Refuse(at, fmt::format("micro-batch {} is given twice in this row", index),
                 "keep one of the two");
  }
  (*seen)[index] = true;
  return index;
}

// The `micro_batches` entries of one row.
void ReadChanges(const proto::Row& row, const Place& place, int micro_batches, const Judge& judge,
                 StageCost* entries) {
  std::vector<bool> seen(micro_batches);
  for (int i = 0; i < row.micro_batch_size(); ++i) {
    const proto::MicroBatch& change = row.micro_batch(i);
    const Place at(place, "micro_batch", i);
    const int index = CheckedIndex(change, at, micro_batches, &seen, judge);
    RefuseStaleSums(row, change, at, judge);
    Overlay(change, at, judge, &entries[index]);
    RefuseTooMuchOverlap(entries[index], at, judge);
  }
}

bool VariesByMicroBatch(const proto::Table& table) {
  return std::any_of(table.row().begin(), table.row().end(),
                     [](const proto::Row& row) { return row.micro_batch_size() > 0; });
}

void CheckTableSize(const proto::Table& table, const Place& place, int micro_batches, bool varies,
                    const Judge& judge) {
  const int rows = table.row_size();
  const Place row(place, "row");
  if (rows == 0) {
    judge.RefuseMissing(row, "row { forward_us: 100 input_grad_us: 100 weight_grad_us: 100 }");
  }
  if (rows > kMaxStages) {
    judge.Refuse(row, fmt::format("{} rows are more than {} stages", rows, kMaxStages),
                 "give a row for each stage at most");
  }
  if (varies && int64_t{rows} * micro_batches > kMaxTableEntries) {
    judge.Refuse(row,
                 fmt::format("{} rows x {} micro-batches that differ are more than {} entries",
                             rows, micro_batches, kMaxTableEntries),
                 "use fewer micro_batches, or leave the micro_batch entries out");
  }
}

std::vector<StageCost> ReadTable(const proto::Table& table, const Place& place, int micro_batches,
                                 const Judge& judge) {
  const bool varies = VariesByMicroBatch(table);
  CheckTableSize(table, place, micro_batches, varies, judge);
  const size_t width = varies ? micro_batches : 1;
  std::vector<StageCost> costs;
  costs.reserve(static_cast<size_t>(table.row_size()) * width);
  for (int i = 0; i < table.row_size(); ++i) {
    const Place at(place, "row", i);
    costs.insert(costs.end(), width, Required(table.row(i), at, judge));
    if (varies) {
      ReadChanges(table.row(i), at, micro_batches, judge, &costs[costs.size() - width]);
    }
  }
  return costs;
}

bool NothingToSchedule(const std::vector<StageCost>& table) {
  return std::all_of(table.begin(), table.end(), [](const StageCost& cost) {
    return cost.forward + cost.input_grad + cost.weight_grad +
               std::max<TimeNs>(cost.fused_backward, 0) ==
           0;
  });
}

void WarnIfNotSplit(const ModelSlices& slices, const Place& form, Judge* judge) {
  // As double: the table may be long, and only a ratio is asked for.
  double forward = 0, input_grad = 0, weight_grad = 0, backward = 0;
  for (const StageCost& cost : slices.table) {
    forward += static_cast<double>(cost.forward);
    input_grad += static_cast<double>(cost.input_grad);
    weight_grad += static_cast<double>(cost.weight_grad);
    backward += static_cast<double>(
        cost.fused_backward == kDerived ? cost.input_grad + cost.weight_grad : cost.fused_backward);
  }
  constexpr const char* kLikely =
      "the weight-gradient split is probably not happening (fused layers compute it inside B), and "
      "zero-bubble schedules will gain little";
  if (weight_grad < 0.1 * backward) {
    judge->Warn({form, "weight_grad_us"}, fmt::format("W is {:.3g} % of the backward: {}",
                                                      100 * weight_grad / backward, kLikely));
  } else if (forward > 0 && input_grad > 1.5 * forward) {
    judge->Warn({form, "input_grad_us"},
                fmt::format("B is {:.3g} times F: {}", input_grad / forward, kLikely));
  }
}

}  // namespace

ModelSlices ReadCosts(const proto::Scenario& scenario, int ranks, int micro_batches, Judge* judge) {
  const Place top;
  const Place costs(top, "costs");
  SPIRITLEVEL_CHECK(scenario.has_costs(), "it was asked whether there are any");
  ModelSlices slices;
  slices.ranks = ranks;
  slices.micro_batches = micro_batches;
  slices.uniform = scenario.costs().has_uniform();
  if (!slices.uniform && !scenario.costs().has_table()) {
    judge->Refuse(costs, "says neither uniform nor table",
                  "add uniform { forward_us: 100 input_grad_us: 100 weight_grad_us: 100 }, or "
                  "table { row { ... } ... }");
  }
  const Place form(costs, slices.uniform ? "uniform" : "table");
  if (slices.uniform) {
    slices.rows = ranks;
    slices.table = {Required(scenario.costs().uniform(), form, *judge)};
  } else {
    slices.rows = scenario.costs().table().row_size();
    slices.table = ReadTable(scenario.costs().table(), form, micro_batches, *judge);
  }
  if (NothingToSchedule(slices.table)) {
    judge->Refuse(form, "all passes take no time: there is nothing to schedule",
                  "give forward_us, input_grad_us and weight_grad_us in microseconds");
  }
  ReadSharedCosts(scenario, *judge, &slices);
  WarnIfNotSplit(slices, form, judge);
  return slices;
}

}  // namespace spiritlevel
