#include "cli/certify.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/searching.h"

namespace spiritlevel {
namespace {

bool HasPairs(const Schedule& schedule) {
  const std::span<const Op> ops = schedule.all_ops();
  return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.overlaps_next; });
}

// Why no bound holds for the run, whatever its numbers; empty where one does.
std::string WhyNot(const Schedule& schedule, const std::optional<Placement>& placement,
                   const PlayOptions& options, const Result& result) {
  if (!result.valid) return "the run is not legal";
  if (!result.fits) return "it does not fit the memory limit";
  if (options.weight_grads == WeightGrads::kByBucket) {
    return "weight gradients are joined by bucket";
  }
  if (HasPairs(schedule)) return "F&B pairs take less time than bounds count";
  if (!schedule.one_rank_per_stage()) return "each stage lies on two ranks";
  if (!placement) return "no bound is of this placement";
  return {};
}

}  // namespace

void SpanCertifier::Certify(const Schedule& schedule, const PlayOptions& options, Result& result) {
  const std::optional<Placement> placement = PlacementOf(schedule);
  result.certificate_note = WhyNot(schedule, placement, options, result);
  if (!result.certificate_note.empty()) return;
  result.certificate = spiritlevel::Certify(BoundOf(*placement), result.summary->max_rank_span);
}

int SpanCertifier::num_bounds() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(bounds_.size());
}

Bound SpanCertifier::BoundOf(const Placement& placement) {
  const Key key(placement.form, placement.ranks, placement.stages_per_rank);
  std::promise<Bound> promise;
  std::shared_future<Bound> bound;
  bool is_mine = false;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = bounds_.try_emplace(key);
    if (is_new) at->second = promise.get_future().share();
    bound = at->second;
    is_mine = is_new;
  }
  if (is_mine) {
    try {
      std::vector<Bytes> limits = limits_;
      if (limits.empty()) {
        limits.assign(static_cast<size_t>(placement.ranks),
                      scenario_.memory_limit.value_or(kNoLimit));
      }
      const ScenarioProblem made = ProblemOf(scenario_, placement, std::move(limits));
      promise.set_value(LowerBound(made.problem));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }
  return bound.get();
}

}  // namespace spiritlevel
