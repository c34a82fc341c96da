// The schedule checker: judges orders with Boost.Graph, sharing no code with the generators, with
// Schedule, or with the engines.
//
//   const ScheduleVerdict v = CheckSchedule(ParseOrders("0F0 0BW0 0F1 0BW1\n"
//                                                       "1F1 1F0 1BW0 1BW1\n"));
//   v.legal();            // false
//   v.findings[0].rule;   // "deadlock"
//   v.findings[0].what;   // schedule deadlocks:
//                         //   rank 0: 0F0 | 0BW0 0F1 0BW1   <-- 0BW0 waits for 1BW0
//                         //   rank 1: | 1F1 1F0 1BW0 1BW1   <-- 1F1 waits for 0F1
//
// Nothing is assumed about the orders: whatever numbers they name, time and memory grow with the
// number of ops and not with the numbers.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/check_findings.h"
#include "sim/op.h"

namespace spiritlevel {

// Which rank holds which stage, p ranks, S stages:
//   linear         S = p, stage s on rank s
//   looped         stage s on rank s mod p, S > p (on a single rank looped and V are the same
//                  thing and called looped)
//   V              stages go down the ranks and up again, turning on the spot: rank r holds r,
//                  2p - 1 - r, 2p + r, ...; S a multiple of p, S > p
//   bidirectional  S = p, each micro-batch with stage s on rank s, or with stage s on rank
//                  p - 1 - s, for all s (DualPipe)
//   other          anything else
enum class PlacementKind { kLinear, kLooped, kV, kBidirectional, kOther };

struct ScheduleVerdict {
  std::vector<Finding> findings;  // empty: the schedule is legal
  PlacementKind placement = PlacementKind::kOther;
  int ranks = 0;
  int stages = 0;           // stages and micro-batches are 0 where the numbers named are too
  int micro_batches = 0;    // absurd to go on with
  int chunks_per_rank = 0;  // of the fullest rank
  // What the file really has, e.g. "4 ranks, 8 stages, two chunks per rank, V placement; F, B, W
  // split; 10 micro-batches", with what it therefore is not: "looped: this is not ZB-V".
  std::string description;

  bool legal() const { return findings.empty(); }
};

// Rules, by name:
//   empty             no ranks, or a rank without ops
//   bad_op            a micro-batch below zero, a pass that does not exist
//   missing_pass      a (stage, micro-batch) without its F, or without its BW or B and W
//   doubled_pass      a pass twice, or both BW and one of B and W
//   split_over_ranks  the passes of one (stage, micro-batch) on two ranks; or a stage on two ranks
//                     for different micro-batches where the placement is not bidirectional
//   bad_pair          an F&B pair that is not an F and a BW of different (stage, micro-batch)s
//                     side by side on one rank
//   deadlock          rank orders and dependencies have a cycle; the cycle in words
ScheduleVerdict CheckSchedule(const Orders& orders);

}  // namespace spiritlevel
