#include "scenarios/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace spiritlevel {
namespace {

ModelRun RunWithStages(const ModelForm& model, int stages) {
  ModelRun run = model.run;
  run.stages = stages;
  if (model.recompute_by_stage && run.recompute.size() != static_cast<size_t>(stages)) {
    throw InputError(
        fmt::format("recompute by stage: {} entries for {} stages", run.recompute.size(), stages),
        "give one for each stage, or recompute for all");
  }
  return run;
}

// What a balanced split hangs on, of all that may change between two uses of one scenario.
using SplitKey =
    std::tuple<int, StageGroups, int64_t, int64_t, std::vector<Recompute>, DType, bool, bool, bool>;

SplitKey KeyOf(const ModelRun& run, const StageGroups& groups) {
  return {run.stages,        groups,    run.sequence_length,  run.micro_batch_size,
          run.recompute,     run.dtype, run.stored_attention, run.norm_grads_in_w,
          run.all_cores_busy};
}

}  // namespace

// A comparison asks for each split several times, and one may take half a second to find.
class BalancedSplits {
 public:
  LayersPerStage Of(const ModelForm& model, const ModelRun& run, const StageGroups& groups) {
    const SplitKey key = KeyOf(run, groups);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = splits_.find(key);
    if (found != splits_.end()) return found->second;
    return splits_[key] = BalancedSplit(model.architecture, run, *model.profile, groups);
  }

 private:
  std::mutex mutex_;
  std::map<SplitKey, LayersPerStage> splits_;
};

namespace {

// The run of a schedule with `stages` stages, its layers named.
ModelRun RunFor(const ModelForm& model, int stages, const StageGroups& groups) {
  ModelRun run = RunWithStages(model, stages);
  if (model.profile) run.dtype = model.profile->dtype;
  if (model.split == Split::kBalanced) {
    SPIRITLEVEL_CHECK(model.profile, "a split by time needs times");
    run.layers_per_stage = model.splits
                               ? model.splits->Of(model, run, groups)
                               : BalancedSplit(model.architecture, run, *model.profile, groups);
  }
  return run;
}

// What an iteration takes, done one after the other, with one stage a rank or as many as the
// scenario has lists for. Twice that, for whatever more stages send and step.
double MostWork(const Scenario& scenario) {
  const ModelForm& model = *scenario.model;
  const size_t lists = model.split == Split::kGiven ? model.run.layers_per_stage.size()
                       : model.recompute_by_stage   ? model.run.recompute.size()
                                                    : static_cast<size_t>(scenario.ranks);
  const Costs costs = CostsFor(scenario, static_cast<int>(lists));
  const Costs::Common& common = costs.common();
  double all = 0;
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    const StageCost& cost = costs.of(stage, 0);
    const TimeNs messages = 2 * (common.hop.latency + common.hop.busy) + 3 * common.launch;
    all += static_cast<double>(cost.forward + cost.input_grad + cost.weight_grad + messages);
  }
  all *= scenario.micro_batches;
  for (const TimeNs step : common.optimizer_by_stage) all += static_cast<double>(step);
  all += static_cast<double>(common.optimizer) * scenario.ranks;
  return 2 * (all + static_cast<double>(common.barrier));
}

// As of costs that are typed in, which are checked when they are read.
void RefuseOverflow(const Scenario& scenario) {
  constexpr double kMost = 0x1p62;  // ns, summed over ranks
  const double work = MostWork(scenario);
  if (work * scenario.ranks <= kMost) return;
  throw InputError(
      fmt::format("with this profile the work of one iteration adds up to {:.3g} years, on {} "
                  "ranks; sums would overflow",
                  work / (365.0 * 86'400e9), scenario.ranks),
      "use fewer micro_batches, ranks or tokens, or another profile");
}

}  // namespace

std::string_view Name(Split split) {
  switch (split) {
    case Split::kEven:
      return "even";
    case Split::kBalanced:
      return "balanced";
    case Split::kGiven:
      return "given";
  }
  return "";
}

void AttachProfile(const DeviceProfile& profile, Scenario* scenario) {
  SPIRITLEVEL_CHECK(scenario->model, "only a model has use for a profile");
  ModelForm& model = *scenario->model;
  if (model.dtype && *model.dtype != profile.dtype) {
    throw InputError(
        fmt::format("{}: the profile was measured with {}, not {}", model.dtype_place,
                    Name(profile.dtype), Name(*model.dtype)),
        fmt::format("use \"{}\", or a profile of {}", Name(profile.dtype), Name(*model.dtype)));
  }
  CheckProfile(profile);
  model.profile = profile;
  model.splits = std::make_shared<BalancedSplits>();
  try {
    RefuseOverflow(*scenario);
  } catch (const InputError& error) {
    throw error.At(model.place);
  }
}

StageGroups GroupsOf(const Schedule& schedule) {
  std::set<std::vector<int>> groups;  // DualPipe's ranks hold the same stages two by two
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const std::span<const int> stages = schedule.stages_of(rank);
    groups.emplace(stages.begin(), stages.end());
  }
  std::vector<int> times(static_cast<size_t>(schedule.num_stages()), 0);
  for (const std::vector<int>& group : groups) {
    for (const int stage : group) ++times[static_cast<size_t>(stage)];
  }
  const bool once = std::all_of(times.begin(), times.end(), [](int t) { return t == 1; });
  return once ? StageGroups(groups.begin(), groups.end()) : StageGroups{};
}

Costs CostsFor(const Scenario& scenario, const Schedule& schedule) {
  const bool balanced = scenario.model && scenario.model->split == Split::kBalanced;
  return CostsFor(scenario, schedule.num_stages(), balanced ? GroupsOf(schedule) : StageGroups{});
}

Costs CostsFor(const Scenario& scenario, int stages, const StageGroups& groups) {
  if (!scenario.model) return CostsForStages(scenario.slices, stages);
  SPIRITLEVEL_CHECK(scenario.model->profile, "a model is played with a profile");
  const ModelForm& model = *scenario.model;
  return CostsFromModel(model.architecture, RunFor(model, stages, groups), *model.profile);
}

void RefuseStages(const Scenario& scenario, int stages) {
  if (!scenario.model) {
    CostsForStages(scenario.slices, stages);
    return;
  }
  ModelRun run = RunWithStages(*scenario.model, stages);
  const Architecture& a = scenario.model->architecture;
  // Whether there is a split does not depend on which is the best.
  if (scenario.model->split == Split::kBalanced) {
    run.layers_per_stage = BalancedStages(a.layers, stages);
  }
  StageMemories(a, run);
}

LayersPerStage LayersFor(const Scenario& scenario, int stages, const StageGroups& groups) {
  SPIRITLEVEL_CHECK(scenario.model, "only a model has layers");
  return StagesOf(scenario.model->architecture, RunFor(*scenario.model, stages, groups));
}

}  // namespace spiritlevel
