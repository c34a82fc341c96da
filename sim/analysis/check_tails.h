// Inside the timeline checker: how iterations end, that is optimizer steps and collectives.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "sim/analysis/check_findings.h"
#include "sim/analysis/check_timeline.h"
#include "sim/event.h"

namespace spiritlevel::check {

// One rank's part in one collective.
struct CollectiveMember {
  TimeNs issue = 0;
  TimeNs end = 0;
  int32_t id = 0;
  int32_t iteration = 0;
  int32_t rank = 0;
  int32_t position = 0;  // in its rank's lane
  int32_t place = 0;     // among the collectives behind the op before it
  bool behind_step = false;
};

// What one rank does in one iteration.
struct RankIteration {
  int32_t iteration = 0;
  int32_t rank = 0;
  int32_t last_op = kNone;  // its position in the lane
  int32_t steps = 0;        // of its optimizer
};

// early_optimizer, late_optimizer, optimizer_count and collective. All it looks at is the order in
// each lane: that what stands behind also runs later is the rule overlap's business.
class TailChecker {
 public:
  explicit TailChecker(LastTail last_tail) : last_tail_(last_tail) {}

  void Add(const Event& node, FindingList& findings);  // of a compute lane; rank and iteration >= 0
  void Finish(FindingList& findings);

 private:
  struct Lane {
    RankIteration now;  // as far as it is known
    int32_t position = 0;
    bool begun = false;
    bool named_early = false;
    int32_t place = 0;  // of the next collective
    int32_t newest_step = kNone;
    TimeNs newest_step_start = 0;
    int32_t newest_op_iteration = kNone;
    Op newest_op;  // the first op of that iteration
  };

  Lane& EnterIteration(const Event& node);
  void AddOp(const Event& op, Lane& lane, FindingList& findings);
  void AddStep(const Event& step, Lane& lane, FindingList& findings);

  LastTail last_tail_;
  std::vector<Lane> lanes_;  // by rank
  std::vector<RankIteration> left_;
  std::vector<CollectiveMember> members_;
};

}  // namespace spiritlevel::check
