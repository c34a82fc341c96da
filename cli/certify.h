// Certificates of schedules that nobody searched for: how far the largest rank span of a run lies
// above the least that any order of its placement can have, under the memory limits.
//
//   SpanCertifier certifier(scenario);
//   certifier.Certify(schedule, options, result);
//   result.certificate;  // or result.certificate_note, why there is none
//
// A bound is worked out once for each placement that it is asked about. From any thread.
#pragma once

#include <future>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/play.h"
#include "report/result.h"
#include "scenarios/scenario.h"
#include "sim/schedule.h"
#include "sim/search/bound.h"
#include "sim/search/problem.h"

namespace spiritlevel {

class SpanCertifier {
 public:
  // `scenario` must outlive it. `limits` are by rank; where there are none the scenario's holds.
  explicit SpanCertifier(const Scenario& scenario, std::vector<Bytes> limits = {})
      : scenario_(scenario), limits_(std::move(limits)) {}

  // `result` is a judged run of `schedule` with `options`. A bound above its span is our defect, an
  // InvariantError.
  void Certify(const Schedule& schedule, const PlayOptions& options, Result& result);

  int num_bounds() const;  // that were worked out

 private:
  using Key = std::tuple<PlacementForm, int, int>;

  Bound BoundOf(const Placement& placement);

  const Scenario& scenario_;
  std::vector<Bytes> limits_;
  mutable std::mutex mutex_;  // guards `bounds_`, not the work on one of them
  std::map<Key, std::shared_future<Bound>> bounds_;
};

}  // namespace spiritlevel
