// Bounds: how good an order can be at best, and what that says of one that was found.
//
//   const Bound bound = LowerBound(problem);
//   const Certificate c = Certify(problem, decoder.Decode(plan));
//   c.proved_optimal;  // no order under these limits is better
//
// A bound holds for every order that this placement and these limits allow: micro-batches in any
// order, each backward in one op or in two, ops started as late as anybody likes. docs/bounds.md
// derives each.
#pragma once

#include <string>

#include "sim/search/problem.h"

namespace spiritlevel {

struct Bound {
  TimeNs value = 0;
  std::string reason{};  // "work of rank 3"
  int rank = 0;          // the one that cannot be faster
};

// The least limit for which `rank` has an order at all: one micro-batch at a time, each backward in
// one op or in two, whichever needs less. Exact.
Bytes LeastFeasibleLimit(const SearchProblem& problem, int rank);

// Throws InputError, with the least feasible limit, where a rank's is below it.
void RequireFeasible(const SearchProblem& problem);

// Of the problem's objective. Throws what RequireFeasible() throws.
Bound LowerBound(const SearchProblem& problem);

struct Certificate {
  TimeNs value = 0;
  TimeNs lower_bound = 0;
  double gap = 0;  // (value - lower_bound) / lower_bound; of a bound of zero, 0 or 1
  bool proved_optimal = false;
  Bound bound{};
};

// `value` is the objective of an order that fits: an InvariantError if a bound lies above it.
Certificate Certify(const SearchProblem& problem, TimeNs value);
// With a bound from elsewhere, where that is larger: SolveExactly()'s.
Certificate Certify(const Bound& bound, TimeNs value);

}  // namespace spiritlevel
