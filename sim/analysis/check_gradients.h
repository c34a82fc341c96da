// Inside the timeline checker: ops that run in parts, and sums of gradients over replicas and
// ranks.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sim/analysis/check_findings.h"
#include "sim/analysis/check_records.h"
#include "sim/event.h"

namespace spiritlevel::check {

// part, bucket and collective_order. Of a timeline without any of it, it keeps little and says
// nothing.
class GradientChecker {
 public:
  void AddNode(const Event& node, FindingList& findings);  // of a compute lane
  // Keeps one record for the whole op once its last part has come.
  void AddPart(const Event& part, TimelineRecords& records, FindingList& findings);
  void FinishParts(TimelineRecords& records, FindingList& findings);

  void AddSum(const Event& sum) { sums_.push_back(sum); }  // a rank's, each lane in its order
  void AddReduction(const Event& reduction);
  void Finish(FindingList& findings);

 private:
  // Iteration, rank, stage.
  using StageKey = std::tuple<int32_t, int32_t, int32_t>;
  using RankKey = std::pair<int32_t, int32_t>;  // iteration, rank
  // Iteration, rank, stage, pass, micro-batch.
  using OpKey = std::tuple<int32_t, int32_t, int32_t, Pass, int32_t>;

  // When what adds to a stage's gradients has ended.
  struct Filled {
    TimeNs whole_ops = 0;  // those that fill all buckets
    TimeNs last_part = 0;
    std::map<int32_t, TimeNs> buckets;  // parts, by bucket
    TimeNs Of(int32_t bucket) const;    // kNone: of all
    int32_t parts = 1;
  };

  // What has to wait for a rank's sums.
  struct Tail {
    TimeNs start = 0;
    const char* name = "";
  };

  struct SumsOfStage {
    std::map<int32_t, const Event*> buckets;
    const Event* exchange = nullptr;
    TimeNs buckets_end = 0;
  };

  void CheckBuckets(FindingList& findings);
  void CheckStart(const Event& sum, FindingList& findings) const;
  void CheckCompleteness(FindingList& findings) const;
  void CheckThatBucketsAreSummed(const StageKey& key, const Filled& filled,
                                 FindingList& findings) const;
  void CheckTails(FindingList& findings) const;
  void CheckMembers(FindingList& findings) const;
  void CheckOrders(FindingList& findings) const;

  std::map<StageKey, Filled> filled_;
  std::map<OpKey, std::pair<OpRecord, Part>> open_;  // ops of which the last part has not come
  std::map<RankKey, std::vector<Tail>> tails_;
  std::map<RankKey, TimeNs> last_op_;  // its end
  std::vector<Event> sums_;
  std::map<StageKey, SumsOfStage> sums_of_;
};

}  // namespace spiritlevel::check
