// The least limit that a rank can work under.
#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "sim/search/bound.h"

namespace spiritlevel {
namespace {

// One micro-batch's passes of one rank, by chunk.
class OneMicroBatch {
 public:
  OneMicroBatch(const SearchProblem& problem, int rank, int micro_batch) {
    for (int chunk = 0; chunk < problem.placement.stages_per_rank; ++chunk) {
      chunks_.push_back(&problem.costs->of(problem.placement.stage_of(rank, chunk), micro_batch));
    }
  }

  // Does some order of its passes need no more than `room`? All F's come before the first B, and
  // B's from the last chunk to the first. A BW that fits leaves less behind than a B; a W that fits
  // frees memory; so both are taken as soon as they can.
  bool Fits(Bytes room) const {
    Bytes live = 0;
    for (const StageCost* c : chunks_) {
      if (live > room - c->activation - Transient(*c, Pass::kF)) return false;
      live += c->activation;
    }
    std::vector<const StageCost*> waiting;
    for (size_t i = chunks_.size(); i-- > 0;) {
      const StageCost& c = *chunks_[i];
      const Bytes more = std::max<Bytes>(0, c.weight_state - c.activation);
      if (live <= room - Transient(c, Pass::kBW)) {
        live -= c.activation;
      } else if (live <= room - more - Transient(c, Pass::kB)) {
        live += c.weight_state - c.activation;
        waiting.push_back(&c);
      } else {
        return false;
      }
      RunWaiting(room, &waiting, &live);
    }
    return waiting.empty();
  }

  // Enough for anything.
  Bytes Most() const {
    Bytes most = 0;
    for (const StageCost* c : chunks_) {
      most += c->activation + c->weight_state;
      for (const Bytes transient : c->transient) most += transient;
    }
    return most;
  }

 private:
  static Bytes Transient(const StageCost& c, Pass pass) {
    return c.transient[static_cast<size_t>(pass)];
  }

  static void RunWaiting(Bytes room, std::vector<const StageCost*>* waiting, Bytes* live) {
    bool any = true;
    while (any) {
      any = false;
      for (size_t i = 0; i < waiting->size(); ++i) {
        const StageCost& c = *(*waiting)[i];
        if (*live > room - Transient(c, Pass::kW)) continue;
        *live -= c.weight_state;
        waiting->erase(waiting->begin() + static_cast<std::ptrdiff_t>(i));
        any = true;
        break;
      }
    }
  }

  std::vector<const StageCost*> chunks_;
};

}  // namespace

Bytes LeastFeasibleLimit(const SearchProblem& problem, int rank) {
  Bytes least = 0;
  const int rows = problem.costs->varies_by_micro_batch() ? problem.micro_batches() : 1;
  for (int i = 0; i < rows; ++i) {
    const OneMicroBatch passes(problem, rank, i);
    if (passes.Fits(least)) continue;
    Bytes low = least;  // does not fit
    Bytes high = passes.Most();
    while (high - low > 1) {
      const Bytes middle = low + (high - low) / 2;
      (passes.Fits(middle) ? high : low) = middle;
    }
    least = high;
  }
  SearchProblem none = problem;
  none.limits.assign(static_cast<size_t>(problem.placement.ranks), 0);
  return least - none.room(rank);
}

void RequireFeasible(const SearchProblem& problem) {
  for (int rank = 0; rank < problem.placement.ranks; ++rank) {
    const Bytes limit = problem.limits[static_cast<size_t>(rank)];
    const Bytes least = LeastFeasibleLimit(problem, rank);
    if (limit >= least) continue;
    throw InputError(
        fmt::format("memory limit: no order fits into {} bytes on rank {}", limit, rank),
        fmt::format("one micro-batch at a time needs {} bytes there: give at least as many",
                    least));
  }
}

}  // namespace spiritlevel
