// Search: the order with the least objective under a memory limit.
//
//   const SearchProblem problem{.placement = {PlacementForm::kLinear, 8, 1}, .costs = &costs,
//                               .limits = std::vector<Bytes>(8, 40_GiB)};
//   const SearchAnswer answer = Search(problem, {.seconds = 5});
//   Schedule(answer.orders);
//
// It begins with the orders it is given, a serial one, and what policies and wave templates find,
// and changes the best of them turn by turn. docs/search.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/op.h"
#include "sim/search/problem.h"

namespace spiritlevel {

struct SearchOptions {
  double seconds = 20;      // of each thread; ignored where evaluations are given
  int64_t evaluations = 0;  // in all: then the answer depends on them, the seed and nothing else
  int islands = 4;          // that many searches by themselves share the evaluations
  uint64_t seed = 1;
  int threads = 0;         // at most one for each core; 0: as many
  TimeNs lower_bound = 0;  // where it is reached, the search ends
  // Legal orders; such as are placed otherwise are passed over. Of those as fast as the best that
  // is found, the one that needs least memory is the answer.
  std::vector<Orders> seeds{};
  const std::atomic<bool>* stop = nullptr;  // when it turns true, the best so far is the answer
  // Told now and then, by one thread, and at the end.
  std::function<void(double done, TimeNs best)> observer{};
};

struct SearchAnswer {
  Orders orders;
  TimeNs value = 0;
  int64_t evaluations = 0;
  double seconds = 0;
};

// Throws InputError where a rank's memory cannot hold a single micro-batch, naming the least limit
// that can, and where there are more chunks on a rank than it looks at.
SearchAnswer Search(const SearchProblem& problem, const SearchOptions& options);

}  // namespace spiritlevel
