#include "scenarios/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/utf8.h"
#include "scenarios/place.h"
#include "scenarios/read_costs.h"
#include "scenarios/read_model.h"
#include "scenarios/shared_costs.h"

namespace spiritlevel {
namespace {

// Neither a sum over ranks and ops nor a few iterations in a row may reach 2^63.
constexpr double kMostWork = 0x1p61;

// V forms and DualPipeV hold two stages a rank, whatever stages_per_rank says.
int MostStagesPerRank(const Scenario& s) { return std::max(2, s.stages_per_rank); }
int MostStages(const Scenario& s) { return s.ranks * MostStagesPerRank(s); }

std::string ReadName(const proto::Scenario& message, const Source& source, const Judge& judge) {
  if (!message.has_name() || message.name().empty()) {
    return Shown(Printable(std::filesystem::path(source.name).stem().string()));
  }
  const Place top;
  const Place place(top, "name");
  constexpr size_t kLongest = 200;
  if (message.name().size() > kLongest) {
    judge.Refuse(place, fmt::format("has {} bytes", message.name().size()),
                 fmt::format("use at most {}", kLongest));
  }
  if (!IsUtf8(message.name())) judge.Refuse(place, "is not UTF-8", "write it without \\ escapes");
  // It is printed into tables and files of one line; an escape sequence must not reach a terminal.
  if (HasControlCharacter(message.name())) {
    judge.Refuse(place, "holds a control character", "write it on one line, without escapes");
  }
  return message.name();
}

void ReadShape(const proto::Scenario& message, const Judge& judge, Scenario* s) {
  const Place top;
  const Place ranks(top, "ranks");
  const Place micro_batches(top, "micro_batches");
  const Place stages_per_rank(top, "stages_per_rank");
  const Place group(top, "group");
  if (!message.has_ranks()) judge.RefuseMissing(ranks, "ranks: 8");
  if (!message.has_micro_batches()) judge.RefuseMissing(micro_batches, "micro_batches: 24");
  s->ranks = judge.Count(ranks, message.ranks(), kMaxStages / 2,
                         "give the number of pipeline ranks, for example ranks: 8");
  s->micro_batches =
      judge.Count(micro_batches, message.micro_batches(), kMaxMicroBatches,
                  "give the micro-batches of one iteration, for example micro_batches: 24");
  if (message.has_stages_per_rank()) {
    s->stages_per_rank =
        judge.Count(stages_per_rank, message.stages_per_rank(), kMaxStages,
                    "give the stages that a rank holds in the interleaved forms, for example 2");
  }
  if (message.has_group()) {
    s->group = judge.Count(group, message.group(), kMaxMicroBatches,
                           "give the group size of the interleaved forms, or leave it out");
  }
}

void CheckProducts(const Judge& judge, const Scenario& s) {
  const Place top;
  const int64_t stages = int64_t{s.ranks} * MostStagesPerRank(s);
  if (stages > kMaxStages) {
    judge.Refuse({top, s.stages_per_rank > 2 ? "stages_per_rank" : "ranks"},
                 fmt::format("{} ranks x {} stages are {} stages, more than {}", s.ranks,
                             MostStagesPerRank(s), stages, kMaxStages),
                 "use fewer ranks or stages_per_rank; V forms always have 2 stages a rank");
  }
  const int64_t passes = stages * s.micro_batches;
  if (passes > kMaxStageMicroBatches) {
    judge.Refuse(
        {top, "micro_batches"},
        fmt::format("{} ranks x {} stages x {} micro-batches are {} passes, more than {}", s.ranks,
                    MostStagesPerRank(s), s.micro_batches, passes, kMaxStageMicroBatches),
        fmt::format("use at most {} micro_batches with these ranks",
                    kMaxStageMicroBatches / stages));
  }
}

void ReadMemoryLimit(const proto::Scenario& message, const Judge& judge, Scenario* s) {
  if (!message.has_memory_limit_bytes()) return;
  const Place top;
  const Place place(top, "memory_limit_bytes");
  s->memory_limit = judge.Size(place, message.memory_limit_bytes());
  if (*s->memory_limit == 0) {
    judge.Refuse(place, "0 is zero: nothing fits into no memory",
                 "give the bytes of one rank, or leave it out for no limit");
  }
}

// What one iteration sums to at the very most, were every op of every rank to run alone. As
// double: these are bounds, and overflow is what they are there to find.
struct Totals {
  double time = 0;
  double bytes = 0;
};

// Times come with a profile, and are looked at then.
Totals BoundOfModel(const Scenario& s) {
  ModelRun run = s.model->run;
  run.ranks = run.stages = 1;
  run.layers_per_stage.clear();
  run.recompute.clear();
  if (!s.model->dtype) run.dtype = DType::kFloat32;  // the largest
  const Architecture& a = s.model->architecture;
  // All that F makes and that B leaves; recomputation has as much of it at once at most.
  const StageMemory all = StageMemories(a, run).front();
  const double kept = static_cast<double>(all.after_forward) +
                      static_cast<double>(all.after_input_grad) +
                      static_cast<double>(all.transient[static_cast<size_t>(Pass::kB)]);
  const double message = static_cast<double>(LayerInputBytes(a, run.shape()));
  const double fixed = static_cast<double>(CountParameters(a).total()) *
                       static_cast<double>(BytesPerParameter(run.dtype).total());
  return {.bytes = s.micro_batches * (2 * kept + 2.0 * MostStages(s) * message) + 4 * fixed};
}

Totals Bound(const Scenario& s) {
  if (s.model) return BoundOfModel(s);
  const ModelSlices& slices = s.slices;
  Totals totals;
  for (const StageCost& cost : slices.table) {
    totals.time += static_cast<double>(cost.forward) + static_cast<double>(cost.input_grad) +
                   static_cast<double>(cost.weight_grad) +
                   std::max(0.0, static_cast<double>(cost.fused_backward)) +
                   std::max(0.0, static_cast<double>(cost.overlapped));
    totals.bytes += static_cast<double>(cost.activation) + static_cast<double>(cost.weight_state);
  }
  const double micro_batches = s.micro_batches;
  const bool per_micro_batch =
      slices.table.size() > static_cast<size_t>(slices.uniform ? 1 : slices.rows);
  const double repeats = (slices.uniform ? s.ranks : 1) * (per_micro_batch ? 1.0 : micro_batches);
  const double messages = 2.0 * MostStages(s) * micro_batches;
  const Costs::Common& common = slices.common;
  totals.time =
      totals.time * repeats +
      messages * (static_cast<double>(common.hop.latency) + static_cast<double>(common.hop.busy)) +
      1.5 * messages * static_cast<double>(common.launch) +
      s.ranks * static_cast<double>(common.optimizer) + static_cast<double>(common.barrier) +
      2.0 * s.ranks *
          (static_cast<double>(slices.sums.reduction) + static_cast<double>(slices.sums.twin)) +
      static_cast<double>(slices.sums.tied_exchange);
  totals.bytes = totals.bytes * repeats + messages * static_cast<double>(common.hop.bytes) +
                 2.0 * s.ranks * static_cast<double>(common.static_bytes);
  return totals;
}

void CheckSums(const Judge& judge, const Scenario& s) {
  const Place top;
  const Place costs(top, s.model ? "model" : "costs");
  const Totals totals = Bound(s);
  // Stalls are summed over ranks, each up to the makespan.
  if (totals.time * s.ranks > kMostWork) {
    judge.Refuse(costs,
                 fmt::format("the work of one iteration adds up to {:.3g} years, on {} ranks; sums "
                             "would overflow",
                             totals.time / (365.0 * 86'400e9), s.ranks),
                 "times are in microseconds; use shorter passes, fewer ranks or fewer "
                 "micro_batches");
  }
  if (totals.bytes > kMostWork) {
    judge.Refuse(costs,
                 fmt::format("the bytes of one iteration add up to {:.3g} pebibytes; sums would "
                             "overflow",
                             totals.bytes / 0x1p50),
                 "use smaller sizes, fewer ranks or fewer micro_batches");
  }
}

// A table that varies has an entry for each stage and micro-batch once it is cut for a schedule.
void CheckCutTable(const Judge& judge, const Scenario& s) {
  if (s.slices.uniform || s.slices.table.size() == static_cast<size_t>(s.slices.rows)) return;
  const int64_t entries = int64_t{MostStages(s)} * s.micro_batches;
  if (entries <= kMaxTableEntries) return;
  const Place top;
  judge.Refuse({top, "micro_batches"},
               fmt::format("{} stages x {} micro-batches that differ are more than {} entries",
                           MostStages(s), s.micro_batches, kMaxTableEntries),
               "use fewer micro_batches, or leave the micro_batch entries of the rows out");
}

void WarnOfUnusableTable(const Scenario& s, Judge* judge) {
  const int rows = s.slices.rows;
  for (const int stages : {s.ranks, 2 * s.ranks, s.stages_per_rank * s.ranks}) {
    if (stages % rows == 0) return;
  }
  const Place top;
  const Place costs(top, "costs");
  const Place table(costs, "table");
  judge->Warn({table, "row"},
              fmt::format("{} rows cannot be cut for any schedule of {} ranks: give {} rows", rows,
                          s.ranks, s.ranks));
}

void WarnOfBlindLimit(const Scenario& s, Judge* judge) {
  if (!s.memory_limit) return;
  const bool any = std::any_of(s.slices.table.begin(), s.slices.table.end(),
                               [](const StageCost& cost) { return cost.activation > 0; });
  if (any) return;
  const Place top;
  judge->Warn({top, "memory_limit_bytes"},
              "is given, but no activation_bytes: every schedule will seem to need the same");
}

void ReadForm(const proto::Scenario& message, const Source& source, Judge* judge, Scenario* s) {
  const Place top;
  if (message.has_costs() && message.has_model()) {
    judge->Refuse({top, "model"}, "stands beside costs", "give either costs or model, not both");
  }
  if (message.has_model()) {
    RefuseSharedCosts(message, *judge);
    s->model = ReadModel(message.model(), *s, source, judge);
    CheckSums(*judge, *s);
    return;
  }
  if (!message.has_costs()) {
    judge->RefuseMissing({top, "costs"},
                         "costs { uniform { forward_us: 100 input_grad_us: 100 "
                         "weight_grad_us: 100 } }; or model { config: \"config.json\" "
                         "sequence_length: 4096 }");
  }
  s->slices = ReadCosts(message, s->ranks, s->micro_batches, judge);
  CheckCutTable(*judge, *s);
  CheckSums(*judge, *s);
  WarnOfUnusableTable(*s, judge);
  WarnOfBlindLimit(*s, judge);
}

}  // namespace

Scenario ConvertScenario(const proto::Scenario& message, const Source& source) {
  Judge judge(source, proto::Scenario::descriptor());
  Scenario s;
  s.name = ReadName(message, source, judge);
  ReadShape(message, judge, &s);
  CheckProducts(judge, s);
  ReadMemoryLimit(message, judge, &s);
  ReadForm(message, source, &judge, &s);
  s.warnings = judge.TakeWarnings();
  return s;
}

}  // namespace spiritlevel
