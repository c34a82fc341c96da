// What a comparison found, before it becomes a table, JSON or advice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/provenance.h"
#include "sim/analysis/summary.h"
#include "sim/schedules/catalog.h"
#include "sim/search/bound.h"

namespace spiritlevel {

// A run in which versions are rejected with some probability, each replayed by itself.
struct Rejection {
  double probability = 0;
  TimeNs period = 0;    // with one version rejected; Summary::period is without
  TimeNs expected = 0;  // the mean, which is Summary::step

  friend bool operator==(const Rejection&, const Rejection&) = default;
};

// One schedule on one scenario. Either it ran, and `summary` is set, or it could not, and `reason`
// says why and what would.
struct Result {
  std::string schedule;
  bool named = true;  // of the catalog, not read from a file
  std::optional<Summary> summary{};
  bool valid = false;  // it ran, and the checker found nothing
  bool fits = false;   // valid, and within the memory limit on every rank
  // Why it cannot run; what the checker found; why it does not fit (rank, op, bytes, category);
  // or what to know about a schedule that runs ("Megatron refuses: group 6 > m"). Often empty.
  std::string reason{};
  std::string placement{};  // "linear", "looped", "V", "bidirectional"
  int stages_per_rank = 1;
  int stages = 0;                           // of the pipeline; 0 where it could not run
  std::vector<int64_t> layers_per_stage{};  // where the costs are of a model
  bool ends_apart = false;                  // no rank holds both the first stage and the last
  // B and W stand by themselves and layers are recomputed once: runtimes that walk the graph in
  // each of the two recompute twice.
  bool recomputes_in_split = false;
  std::optional<Rejection> rejection{};
  ClosedForm closed_form{};  // where the stages are equal and it holds
  // Of the largest rank span: no order of this placement under the memory limit is below the bound.
  std::optional<Certificate> certificate{};
  std::string certificate_note{};  // why there is none
};

struct Comparison {
  std::string scenario;
  int ranks = 0;
  int micro_batches = 0;
  std::optional<Bytes> memory_limit{};  // of every rank
  std::vector<Bytes> rank_limits{};     // where they differ, by rank; memory_limit is none then
  std::string posting{};
  std::string tail{};
  std::string receives{};  // where that is a choice, as are the next two
  std::string channels{};
  std::string weight_grads{};
  double rejection = 0;                 // probability
  std::vector<std::string> warnings{};  // of the scenario
  std::vector<Result> results{};        // in the order asked for
  // 1F1B on the same scenario, for speed-up and advice, whether it was asked for or not; nothing
  // when even that cannot run.
  std::optional<Result> one_f_one_b{};

  // Every schedule of the catalog is among `results`, so that "none" means none of them.
  bool whole_catalog = false;

  std::optional<Provenance> provenance{};

  // Facts of the scenario that advice needs; of the linear placement, one stage a rank.
  TimeNs work_per_rank = 0;       // mean over ranks of the least time its ops take, optimizer too
  TimeNs optimizer_per_rank = 0;  // how much of that is the optimizer step
  TimeNs slowest_stage_work = 0;  // of the stage that has most, optimizer too
  double weight_grad_share = 0;   // W of BW, over all stages and micro-batches
  TimeNs transfer = 0;            // latency and link occupancy of one hop
};

}  // namespace spiritlevel
