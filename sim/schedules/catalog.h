// The catalog: every named schedule with its constraints, its formulas and its generator.
//
//   const ScheduleInfo& info = FindSchedule("dualpipe");
//   const Shape shape{.ranks = 8, .micro_batches = 20};
//   if (!info.Refusal(shape)) const Schedule s = info.Make(shape);
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "sim/costs.h"
#include "sim/schedule.h"

namespace spiritlevel {

struct Shape {
  int ranks = 1;
  int micro_batches = 1;
  int stages_per_rank = 2;  // of the interleaved forms; the V forms have 2, the others 1
  int group = 0;            // of the interleaved forms; 0: PyTorch's, see DefaultGroup()
};

// What a formula says for equal stages and micro-batches; nothing where it does not hold.
struct ClosedForm {
  std::optional<TimeNs> makespan;  // without tail
  std::optional<TimeNs> max_rank_span;
  // Most stage activations on the fullest rank, each held from the start of its F to the end of
  // its W or BW.
  std::optional<int> peak_stage_activations;
};

struct ScheduleInfo {
  std::string_view name;
  std::string_view placement;   // "linear", "looped", "V", "bidirectional"
  std::string_view constraint;  // in words, for `spiritlevel schedules`
  std::string_view bubble;      // formula, for F, B, W of one rank's share, c = transfer
  std::string_view memory;      // formula, in activations of one rank's share
  std::string_view source;      // paper or program

  int (*stages_per_rank)(const Shape&);
  Orders (*generate)(const Shape&);  // of an order that hangs on costs: for equal ones
  std::optional<InputError> (*refuse)(const Shape&);
  std::string (*note)(const Shape&);
  ClosedForm (*closed_form)(const Shape&, const StageCost&, TimeNs transfer);
  // Of the automatic schedulers, whose order hangs on what each stage costs; else null.
  Schedule (*generate_for)(const Costs&) = nullptr;

  bool hangs_on_costs() const { return generate_for != nullptr; }

  // Why it cannot run on this shape, and what would; nothing if it can.
  std::optional<InputError> Refusal(const Shape& shape) const { return refuse(shape); }

  // Throws Refusal(), or the Schedule's own InputError (an order that deadlocks).
  Schedule Make(const Shape& shape) const;
  // The same for these costs, where the order hangs on them.
  Schedule Make(const Shape& shape, const Costs& costs) const;

  // What a user of a shape it can run should know, e.g. that a runtime refuses it; often empty.
  std::string Note(const Shape& shape) const { return note(shape); }

  // `cost` is one stage's. Exact under the conditions that docs/schedules.md gives.
  ClosedForm Formula(const Shape& shape, const StageCost& cost, TimeNs transfer) const {
    return closed_form(shape, cost, transfer);
  }
};

std::span<const ScheduleInfo> AllSchedules();

// Throws InputError with the names there are, the nearest first.
const ScheduleInfo& FindSchedule(std::string_view name);

// PyTorch's micro-batches per round: m div max(1, m div p).
int DefaultGroup(int ranks, int micro_batches);

}  // namespace spiritlevel
