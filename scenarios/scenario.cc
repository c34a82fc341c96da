#include "scenarios/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
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

// The run of a schedule with `stages` stages, its layers named.
ModelRun RunFor(const ModelForm& model, int stages, const StageGroups& groups) {
  ModelRun run = RunWithStages(model, stages);
  if (model.profile) run.dtype = model.profile->dtype;
  if (model.split == Split::kBalanced) {
    SPIRITLEVEL_CHECK(model.profile, "a split by time needs times");
    run.layers_per_stage = BalancedSplit(model.architecture, run, *model.profile, groups);
  }
  return run;
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
