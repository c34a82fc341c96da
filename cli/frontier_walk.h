// Walks memory limits: searches under each, and carries orders from one to the next.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/frontier.h"
#include "scenarios/scenario.h"
#include "sim/search/problem.h"

namespace spiritlevel {

struct WalkOptions {
  std::vector<Placement> placements{};
  Objective objective = Objective::kSpan;
  Tail tail = Tail::kBarrier;
  // By rank, and only their ratios beside static memory count: each rank's limit is its static
  // memory and the same share of what these leave it. Empty: the same limit on all ranks.
  std::vector<Bytes> ratio{};
  // What there is now; this and `more` above it are looked at, too. With a ratio it is what that
  // gives the rank with the most room. It may hold no order at all: the frontier then says why.
  std::optional<Bytes> home{};
  std::string home_from{};      // "--memory-limit", or the scenario's field
  std::optional<Bytes> more{};  // nothing: 8 GiB, or a quarter of what is looked at
  int points = 16;              // limits to search under
  double seconds = 20;          // for all of them
  int64_t evaluations = 0;      // likewise: then the answer hangs on these and the seed alone
  uint64_t seed = 1;
  int threads = 0;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(int points_done, double share)> observer{};
};

// Where it is stopped, what is known so far, which is at least the two ends.
//
// It begins with the least feasible limit and none at all. Between two limits a better time must
// stand in the rectangle of what lies between them; the largest is split, at a limit that holds one
// activation or one W-state more than the last. An order found under one limit is where the search
// begins under the limits beside it, and is the answer under a larger one if nothing better is
// found, so that times fall as limits grow. The points of the answer are where they fall: at the
// limits that the orders found need, and those of named schedules between them.
//
// Throws InputError where the scenario has no costs for any of the placements.
Frontier WalkFrontier(const Scenario& scenario, const WalkOptions& options);

}  // namespace spiritlevel
