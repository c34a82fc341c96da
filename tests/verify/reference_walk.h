// What a run must come to, by the dumbest program there is: no Program, no lanes, no messages; one
// stage after the other, one micro-batch after the other, gradients added in each rank's order.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sim/costs.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "tests/verify/tracing_work.h"

namespace spiritlevel {

inline std::vector<int> BucketsOf(const Costs& costs) {
  std::vector<int> buckets(static_cast<size_t>(costs.num_stages()), 1);
  const GradientSums& sums = costs.common().gradients;
  for (size_t stage = 0; stage < sums.buckets.size(); ++stage) {
    buckets[stage] = static_cast<int>(sums.buckets[stage].size());
  }
  return buckets;
}

class ReferenceWalk {
 public:
  ReferenceWalk(const Schedule& schedule, const Costs& costs, const LoweringOptions& options,
                int replicas = 1)
      : schedule_(schedule), costs_(costs), options_(options), replicas_(replicas) {
    const std::vector<int> buckets = BucketsOf(costs);
    for (int replica = 0; replica < replicas; ++replica) {
      for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
        auto& stages = ranks_.emplace_back();
        for (const int stage : schedule.stages_of(rank)) {
          stages[stage] = {.parameters = FirstParameters(stage),
                           .gradients = std::vector<Hash>(static_cast<size_t>(buckets[stage]), 0)};
        }
      }
    }
    results_.resize(ranks_.size());
  }

  // By rank, replica by replica.
  std::vector<TracedResult> Run() {
    for (int i = 0; i < options_.iterations; ++i) {
      for (int replica = 0; replica < replicas_; ++replica) RunPasses(replica, i);
      SumGradients();
      const Hash norm = NormOf();
      const bool is_rejected =
          std::count(options_.rejected.begin(), options_.rejected.end(), i) > 0;
      const bool knows_norm = options_.tail == Tail::kBarrier || is_rejected;
      for (auto& stages : ranks_) {
        for (auto& [number, stage] : stages) {
          stage.parameters = Stepped(stage, knows_norm ? norm : 0);
          std::fill(stage.gradients.begin(), stage.gradients.end(), 0);
        }
      }
      for (TracedResult& result : results_) {
        if (options_.tail != Tail::kNoTail) result.norms = HashOf({result.norms, norm});
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const auto& [number, stage] : ranks_[r]) {
        results_[r].parameters = HashOf({results_[r].parameters, stage.parameters});
      }
    }
    return results_;
  }

 private:
  std::map<int, TracedStage>& RankOf(int replica, int rank) {
    return ranks_[static_cast<size_t>(replica * schedule_.num_ranks() + rank)];
  }

  void RunPasses(int replica, int iteration) {
    std::map<std::pair<int, int>, Hash> gradients;  // by stage and micro-batch
    for (int i = 0; i < schedule_.num_micro_batches(); ++i) {
      Hash at = FirstInput(replica, iteration, i);
      std::vector<Hash> outputs;
      for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
        at = Output(RankOf(replica, schedule_.rank_of(stage, i)).at(stage).parameters, at);
        outputs.push_back(at);
      }
      Hash gradient = HashOf({kInputGrad, 0});
      for (int stage = schedule_.num_stages() - 1; stage >= 0; --stage) {
        gradient = InputGradient(outputs[static_cast<size_t>(stage)], gradient);
        gradients[{stage, i}] = gradient;
      }
    }
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      for (const Op& op : schedule_.ops(rank)) {
        if (op.pass != Pass::kW && op.pass != Pass::kBW) continue;
        for (Hash& bucket : RankOf(replica, rank).at(op.stage).gradients) {
          AddWeightGradient(bucket, gradients.at({op.stage, op.micro_batch}));
        }
      }
    }
  }

  void SumGradients() {
    const GradientSums& sums = costs_.common().gradients;
    const int ranks = schedule_.num_ranks();
    if (!sums.buckets.empty()) {
      for (int rank = 0; rank < ranks; ++rank) {
        for (auto& [number, first] : RankOf(0, rank)) {
          for (size_t b = 0; b < first.gradients.size(); ++b) SumBucket(rank, number, b);
        }
      }
    }
    const bool one_rank = schedule_.one_rank_per_stage();
    for (int replica = 0; replica < replicas_; ++replica) {
      for (int stage = 0; stage < schedule_.num_stages() && !sums.twins.empty() && !one_rank;
           ++stage) {
        std::vector<TracedStage*> twins;
        for (int rank = 0; rank < ranks; ++rank) {
          auto& stages = RankOf(replica, rank);
          if (stages.contains(stage)) twins.push_back(&stages.at(stage));
        }
        if (twins.size() > 1) Exchange(twins);
      }
      const int last = schedule_.num_stages() - 1;
      if (!sums.tied.empty() && one_rank && schedule_.rank_of(0, 0) != schedule_.rank_of(last, 0)) {
        Exchange({&RankOf(replica, schedule_.rank_of(0, 0)).at(0),
                  &RankOf(replica, schedule_.rank_of(last, 0)).at(last)});
      }
    }
  }

  void SumBucket(int rank, int stage, size_t bucket) {
    std::vector<Hash> all;
    for (int replica = 0; replica < replicas_; ++replica) {
      all.push_back(RankOf(replica, rank).at(stage).gradients[bucket]);
    }
    for (int replica = 0; replica < replicas_; ++replica) {
      RankOf(replica, rank).at(stage).gradients[bucket] = SumOfAll(all);
    }
  }

  static void Exchange(const std::vector<TracedStage*>& stages) {
    std::vector<Hash> all;
    for (const TracedStage* stage : stages) all.push_back(HashOfGradients(*stage));
    const Hash sum = SumOfAll(all);
    for (TracedStage* stage : stages) {
      uint64_t bucket = 0;
      for (Hash& gradient : stage->gradients) gradient = HashOf({sum, bucket++});
    }
  }

  Hash NormOf() const {
    std::vector<Hash> all;
    for (const auto& stages : ranks_) {
      Hash hash = 0;
      for (const auto& [number, stage] : stages) {
        hash = HashOf({kNorm, hash, HashOfGradients(stage)});
      }
      all.push_back(hash);
    }
    return SumOfAll(all);
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const LoweringOptions& options_;
  int replicas_;
  std::vector<std::map<int, TracedStage>> ranks_;
  std::vector<TracedResult> results_;
};

}  // namespace spiritlevel
