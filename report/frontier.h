// The frontier: the least time that was found for each memory limit, and how much less any order
// could take at best. What the walk found, before it becomes a table, JSON or a page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "sim/search/bound.h"

namespace spiritlevel {

// The best known under one limit.
struct FrontierPoint {
  Bytes limit = 0;            // of the rank with the largest
  std::vector<Bytes> limits;  // by rank
  Certificate certificate{};  // its bound is below every order of the placements looked at
  std::string found_by{};     // the named schedule that does as well within this limit, or "search"
  std::string placement{};
  int stages_per_rank = 1;
  Bytes needs = 0;  // the least limit that holds this order

  TimeNs value() const { return certificate.value; }
  TimeNs lower_bound() const { return certificate.lower_bound; }
};

struct FrontierSchedule {
  std::string name;
  Bytes limit = 0;  // the least that holds it
  TimeNs value = 0;
  std::string placement{};

  friend bool operator==(const FrontierSchedule&, const FrontierSchedule&) = default;
};

struct Frontier {
  std::string scenario;
  int ranks = 0;
  int micro_batches = 0;
  std::string objective;
  std::string tail;
  std::string placement;  // as asked for
  // Ascending limits, the first the least feasible; values fall, and so do bounds.
  std::vector<FrontierPoint> points{};
  TimeNs bound_beyond = 0;                    // whatever the limit
  std::vector<FrontierSchedule> schedules{};  // by limit
  std::optional<Bytes> home{};                // the limit that the user has
  Bytes more = 0;                             // what "more memory" is asked about
  bool own_ratio = false;                     // limits differ by rank, and grow together
  std::vector<std::string> passed_over{};
  bool interrupted = false;
  double seconds = 0;
  int64_t evaluations = 0;
  uint64_t seed = 1;

  // The last point that a limit of `limit` reaches; null below all of them.
  const FrontierPoint* At(Bytes limit) const;
  // No order under a limit of `limit` is below it; 0 below the least feasible.
  TimeNs BoundAt(Bytes limit) const;
};

// "8 GiB more buy 3.1 %": from the user's limit on, or from the least feasible; one sentence on how
// sure that is, and one on where more memory buys nothing.
std::string FrontierAnswer(const Frontier& frontier);

// A row for each point, the named schedules, a small plot and the answer. `width` in columns.
std::string FrontierText(const Frontier& frontier, int width);

std::string FrontierJson(const Frontier& frontier);

// One file that opens offline, without a script. report/frontier_page.cc
std::string FrontierPage(const Frontier& frontier);

}  // namespace spiritlevel
