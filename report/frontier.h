// The frontier: the least time that was found for each memory limit, and how much less any order
// could take at best. What the walk found, before it becomes a table, JSON or a page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "sim/search/bound.h"

namespace spiritlevel {

// A step of the curve: the best known from its limit on.
struct FrontierPoint {
  Bytes limit = 0;            // the least that holds its order; of the rank with the largest
  std::vector<Bytes> limits;  // by rank
  Certificate certificate{};  // its bound is below every order of the placements looked at
  std::string found_by{};     // a named schedule of its placement that does as well, or "search"
  std::string placement{};
  int stages_per_rank = 1;

  TimeNs value() const { return certificate.value; }
  TimeNs lower_bound() const { return certificate.lower_bound; }
};

// No order of the placements looked at is below `value` under `limit`, or under less.
struct FrontierBound {
  Bytes limit = 0;
  TimeNs value = 0;
};

// Whether the curve and its bounds are about a named schedule.
enum class FrontierCover : uint8_t {
  kCovered,
  kOtherPlacement,  // than those looked at: it may lie below curve and bound
  kPairs,           // of ops that overlap, which no search makes and no bound counts
};

struct FrontierSchedule {
  std::string name;
  Bytes limit = 0;  // the least that holds it
  TimeNs value = 0;
  std::string placement{};  // as a point's; "bidirectional" of two copies of the model
  FrontierCover cover = FrontierCover::kCovered;

  bool covered() const { return cover == FrontierCover::kCovered; }

  friend bool operator==(const FrontierSchedule&, const FrontierSchedule&) = default;
};

struct Frontier {
  std::string scenario;
  int ranks = 0;
  int micro_batches = 0;
  std::string objective;
  std::string tail;
  std::string placement;                  // as asked for: may be "best"
  std::vector<std::string> placements{};  // that were looked at: "linear", "looped x2"
  // Ascending limits, the first the least feasible; each value is below the one before.
  std::vector<FrontierPoint> points{};
  std::vector<FrontierBound> bounds{};        // at each limit looked at; they fall, too
  TimeNs bound_beyond = 0;                    // whatever the limit
  std::vector<FrontierSchedule> schedules{};  // by limit
  std::optional<Bytes> home{};                // the limit that the user has
  std::string home_refusal{};                 // why that holds no order; empty where it does
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

// "linear placement", "linear, v or looped x2 placement": what curve and bounds are about.
std::string LookedAt(const Frontier& frontier);

// "8 GiB more buy 3.1 %": from the user's limit on, or from the least feasible; one sentence on how
// sure that is, one on where more memory buys nothing, and one on what is not looked at.
std::string FrontierAnswer(const Frontier& frontier);

// A row for each point, the named schedules, a small plot and the answer. `width` in columns.
std::string FrontierText(const Frontier& frontier, int width);

std::string FrontierJson(const Frontier& frontier);

// One file that opens offline, without a script. report/frontier_page.cc
std::string FrontierPage(const Frontier& frontier);

}  // namespace spiritlevel
