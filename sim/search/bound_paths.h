// What every order must respect, read from a SearchProblem once: the least time of each pass, the
// way of a micro-batch through the stages, what a rank may hold. Shared by the bounds.
#pragma once

#include <vector>

#include "sim/search/problem.h"

namespace spiritlevel {

// A stage's share of a micro-batch, made so easy that B and W, or BW, whatever an order chooses,
// take at least as long and hold at least as much: docs/bounds.md, "One kind of backward".
struct EasyCost {
  TimeNs forward = 0;  // launches included, in all
  TimeNs backward = 0;
  TimeNs weight = 0;
  Bytes activation = 0;
  Bytes weight_state = 0;  // never above the activation
};

// The way of one micro-batch, if it never waits.
class Path {
 public:
  Path(const SearchProblem& problem, int micro_batch);

  const EasyCost& cost(int stage) const { return costs_[static_cast<size_t>(stage)]; }

  // From the start of the first stage's F.
  TimeNs forward_start(int stage) const { return forward_[static_cast<size_t>(stage)]; }
  TimeNs forward_end(int stage) const { return forward_start(stage) + cost(stage).forward; }
  TimeNs backward_start(int stage) const { return backward_[static_cast<size_t>(stage)]; }
  TimeNs backward_end(int stage) const { return backward_start(stage) + cost(stage).backward; }

 private:
  std::vector<EasyCost> costs_;
  std::vector<TimeNs> forward_;
  std::vector<TimeNs> backward_;
};

// One for each micro-batch; a single one where all are alike.
std::vector<Path> PathsOf(const SearchProblem& problem);

// A rank's optimizer step.
TimeNs OptimizerOf(const SearchProblem& problem, int rank);

// Sums of the k smallest, or largest, of a rank's items: `sum[k]`. An item is one stage's share of
// one micro-batch.
using PrefixSums = std::vector<int64_t>;

struct RankItems {
  int items = 0;   // stages of the rank times micro-batches
  int chunks = 1;  // of which each micro-batch has so many
  PrefixSums forward, backward, weight, activation, weight_state;  // the smallest first
  PrefixSums most_forward, most_activation;                        // the largest first
  PrefixSums first_activation, first_forward;  // of the first chunk alone, the smallest first
  Bytes least_whole = 0;                       // all chunks of the micro-batch that holds least
  TimeNs least_last_backward = 0;              // of the last chunk

  // What may be held when an F, or a B or BW, has started, the op's own transient aside.
  Bytes limit_at_forward = 0;
  Bytes limit_at_backward = 0;
  Bytes room = 0;  // at any time; kNoLimit where nothing limits it

  // Least times over micro-batches.
  TimeNs to_first_backward = 0;  // start of the first chunk's F to start of the last one's B
  TimeNs to_last_chunk = 0;      // start of the first chunk's F to end of the last one's F
  TimeNs to_backward_end = 0;    // end of the last chunk's F to end of the first one's B
  TimeNs to_weight_end = 0;      // and to the end of its W
  // Largest: each micro-batch has to go its way.
  TimeNs longest_way = 0;  // start of the first chunk's F to end of its W
  // Over all items: bytes times how long they are held at least.
  Int128 held = 0;
  // What one op gives back at most; and the largest such rate, none (of 0 bytes) where an op of no
  // time gives back any.
  struct Rate {
    Bytes bytes = 0;
    TimeNs time = 0;
  };
  Bytes most_freed_at_once = 0;
  Rate steepest{};

  TimeNs work() const { return forward.back() + backward.back() + weight.back(); }
};

RankItems ItemsOf(const SearchProblem& problem, const std::vector<Path>& paths, int rank);

}  // namespace spiritlevel
