// Policies: a handful of numbers that say which turn a rank takes next, and the list scheduler that
// follows them. Where memory is short one run of it already beats the published heuristics.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/search/plan.h"
#include "sim/search/problem.h"

namespace spiritlevel {

// The rank that can act earliest acts. It takes the turn that can start earliest, a forward being
// counted `forward_bias` forwards later than it is; but where that turn is more than `gap` W's
// away, a W that waits.
struct Policy {
  double gap = 0.5;
  double forward_bias = 0;
  double later_chunk_bias = 0;  // how much later each chunk behind the first counts, in forwards
  // Forwards of the first stage keep this distance, in the time of all work of a micro-batch on its
  // rank.
  double pace = 0;
  // Micro-batches between the first forward and the last backward of a rank, from the first rank to
  // the last in a line; nothing below 1.
  double cap_first = 1e9;
  double cap_last = 1e9;
  // Room for one micro-batch's way through all of a rank's chunks is kept free at all times, and
  // not only while none of them holds one.
  bool keeps_room = false;
};

// Plays a policy. One for each thread; scratch memory is kept between calls.
class ListScheduler {
 public:
  explicit ListScheduler(const SearchProblem& problem);

  // The turns it takes, in `plan`, whose order of micro-batches is kept. False: it got stuck.
  bool Run(const Policy& policy, Plan* plan);

 private:
  struct Rank {
    TimeNs free = 0;
    Bytes live = 0;
    TimeNs acts_at = 0;
    int turn = 0;  // kTakesW, or a Turn
    std::vector<int32_t> forwards;
    std::vector<int32_t> backwards;
    std::vector<int32_t> waiting_w;  // index into w_costs_
    size_t w_head = 0;
  };

  void Decide(int rank);
  void Act(int rank, Plan* plan);
  bool MayForward(const Rank& rank, int index, int chunk, const StageCost& cost) const;
  TimeNs& Arrival(int stage, bool backward, int32_t place);
  const StageCost& CostOf(int stage, int32_t place) const;

  SearchProblem problem_;
  const Plan* plan_ = nullptr;
  Policy policy_;
  TimeNs pace_ = 0;
  int32_t micro_batches_ = 0;
  std::vector<Rank> ranks_;
  std::vector<TimeNs> arrivals_;
  std::vector<Bytes> room_;
  std::vector<int32_t> caps_;
};

}  // namespace spiritlevel
