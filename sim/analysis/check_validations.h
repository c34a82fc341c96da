// Inside the timeline checker: post-validation, that is reductions beside compute, the validations
// that wait for them, and what is dropped and done again when one of them rejects.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sim/analysis/check_findings.h"
#include "sim/analysis/check_timeline.h"
#include "sim/event.h"

namespace spiritlevel::check {

// reduction, validation and rejection. Of a timeline without any of it, it keeps little and says
// nothing. All it looks at in a compute lane is the order of its nodes, and when the ops end.
class ValidationChecker {
 public:
  explicit ValidationChecker(LastTail last_tail) : last_tail_(last_tail) {}

  void AddNode(const Event& node, FindingList& findings);  // of a compute lane
  void AddReduction(const Event& reduction) { members_.push_back(reduction); }
  void Finish(FindingList& findings);

 private:
  // What is known of the parameters that lie on a rank.
  enum class Known : uint8_t { kNothing, kStepped, kValidated };

  struct Lane {
    Known known = Known::kNothing;
    NodeKind last = NodeKind::kOp;
    int32_t last_iteration = kNone;
    int32_t newest_op_iteration = kNone;  // of those that are not dropped
    std::optional<MemoryByCategory> before_dropped;
  };

  struct Validation {
    TimeNs start = 0;
    int32_t collective = kNone;
    bool rolled_back = false;
  };

  struct RankIteration {
    TimeNs last_op_end = 0;
    bool runs_ops = false;
    int rollbacks = 0;
    std::vector<Validation> validations;
    std::optional<Op> unmarked;  // ran before the validation, and is not said to be provisional
    std::optional<Op> marked;    // ran before it, and is
  };
  using Key = std::pair<int32_t, int32_t>;  // iteration, rank

  void AddOp(const Event& op, Lane& lane, RankIteration& now, FindingList& findings);
  void AddDropped(const Event& op, Lane& lane, FindingList& findings);
  void AddRollback(const Event& rollback, Lane& lane, RankIteration& now, FindingList& findings);

  void CheckReductions(FindingList& findings);
  void CheckMember(const Event& member, const Event& first, FindingList& findings) const;
  void CheckValidations(FindingList& findings) const;
  void CheckRank(const Key& key, const RankIteration& now, FindingList& findings) const;
  void CheckWait(const Key& key, const Validation& validation, FindingList& findings) const;
  void CheckRollbacks(FindingList& findings) const;

  bool HasReduction(int32_t iteration) const;
  TimeNs LastOpEnd(int32_t iteration) const;

  LastTail last_tail_;
  std::vector<Lane> lanes_;  // by rank
  std::map<Key, RankIteration> all_;
  std::vector<Event> members_;
  std::map<Key, const Event*> member_of_;
};

}  // namespace spiritlevel::check
