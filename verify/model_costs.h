// ModelCosts: what a TrainingTask costs, for the simulator. Memory is what the kernels keep, to the
// byte; times are the caller's.
//
// The ledger of a Program that is lowered from them equals, at every node of a measured timeline,
// what the ranks' meters count, with one replica; docs/runtime.md says what counts.
#pragma once

#include <vector>

#include "sim/costs.h"
#include "verify/model_plan.h"

namespace spiritlevel {

struct PassTimes {
  TimeNs forward = 0;
  TimeNs input_grad = 0;
  TimeNs weight_grad = 0;
  TimeNs fused_backward = 0;
  TimeNs overlapped = 0;  // F&B
};

struct ModelTimes {
  std::vector<PassTimes> passes{};  // by stage; empty: all take no time
  TimeNs launch = 0;
  TimeNs hop_latency = 0;
  TimeNs hop_busy = 0;
  std::vector<TimeNs> optimizer_by_stage{};  // or none
  TimeNs barrier = 0;
  // Of sums of gradients: each, and each byte in 2^-32 ns.
  TimeNs sum = 0;
  int64_t sum_per_byte = 0;
};

struct ModelCostsOptions {
  // The tail keeps one snapshot of every stage all the time (post-validation).
  bool keeps_snapshot = false;
  // Which replica's: a sharded optimizer's shares differ.
  int replica = 0;
};

// One stage's, its memory alone.
StageCost MemoryCostOf(const TrainingTask& task, int stage);

Costs ModelCosts(const TrainingTask& task, const ModelTimes& times = {},
                 const ModelCostsOptions& options = {});

}  // namespace spiritlevel
