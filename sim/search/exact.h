// The best order of a small problem, proved: an integer program, solved by CBC (package
// coinor-libcbc-dev) where the program was built with it.
//
//   if (ExactIsAvailable()) {
//     const ExactAnswer best = SolveExactly(problem, /*seconds=*/60, orders_found);
//     if (best.proved) ...
//   }
//
// Up to some 200 ops it often ends within the minute; a problem far larger gives its bound only.
// docs/bounds.md has the program.
#pragma once

#include "sim/op.h"
#include "sim/search/bound.h"
#include "sim/search/problem.h"

namespace spiritlevel {

struct ExactAnswer {
  Orders orders;        // never worse than those it began with
  TimeNs value = 0;     // their objective, each op as early as it can
  Bound bound{};        // the larger of LowerBound() and the solver's
  bool proved = false;  // value == bound.value
  double seconds = 0;
};

bool ExactIsAvailable();

// `start` is an order that fits: the search's, or a named schedule's. At most `seconds` long, which
// a large problem overruns by the time its first relaxation takes. Not for the step without a
// barrier, in which iterations interlock.
//
// Throws InputError where the program was built without CBC, for that objective, for a problem with
// more choices than CBC can hold (kMostExactChoices), and for limits that nothing fits into.
ExactAnswer SolveExactly(const SearchProblem& problem, double seconds, const Orders& start);

inline constexpr int kMostExactChoices = 20'000;

}  // namespace spiritlevel
