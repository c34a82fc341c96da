#include "cli/profile.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "calibrate/profile_file.h"
#include "models/assumptions.h"
#include "models/model_costs.h"

namespace spiritlevel {
namespace {

std::string Clean(const std::string& text) { return Shown(Printable(text), 300); }

ModelProvenance ProvenanceOf(const ModelForm& form) {
  ModelRun run = form.run;
  run.dtype = form.profile->dtype;
  ModelProvenance model;
  model.config_file = Clean(form.config_file);
  model.model_class = form.architecture.name;
  model.layers = form.architecture.layers;
  model.parameters = CountParameters(form.architecture).total();
  model.sequence_length = run.sequence_length;
  model.micro_batch_size = run.micro_batch_size;
  model.split = Name(form.split);
  for (const Recompute recompute : run.recompute) model.recompute.emplace_back(Name(recompute));
  if (model.recompute.empty()) model.recompute.emplace_back(Name(Recompute::kNothing));
  model.data_parallel = run.data_parallel;
  model.bucket_bytes = run.bucket_bytes;
  model.all_cores_busy = run.all_cores_busy;
  for (const std::string& line : form.architecture.assumptions) {
    model.assumptions.push_back(Clean(line));
  }
  for (std::string& line : AssumptionsOf(run)) model.assumptions.push_back(std::move(line));
  model.not_modelled.assign(NotModelled().begin(), NotModelled().end());
  return model;
}

ProfileProvenance ProvenanceOf(const Calibration& calibration, const std::string& file) {
  const Errors held_out = InTotal(calibration, /*held_out=*/true);
  return {.file = Clean(file),
          .date = Clean(calibration.date),
          .cpu = Clean(calibration.machine.cpu),
          .dtype = std::string(Name(calibration.profile.dtype)),
          .library = Clean(calibration.software.blas),
          .held_out_shapes = held_out.count,
          .held_out_p90 = held_out.p90,
          .noisy = calibration.validity.noisy()};
}

}  // namespace

LoadedScenario WithProfile(Scenario scenario, const std::string& file, const std::string& profile) {
  LoadedScenario loaded{.scenario = std::move(scenario), .provenance = {}};
  loaded.provenance.scenario_file = Clean(file);
  if (!loaded.scenario.model) {
    if (profile.empty()) return loaded;
    throw InputError(fmt::format("--profile: {} has its costs typed in", file),
                     "leave it out, or use a scenario with a model");
  }
  ModelForm& model = *loaded.scenario.model;
  const std::string& named = profile.empty() ? model.profile_file : profile;
  if (named.empty()) {
    throw InputError(fmt::format("{}: its model has no times: no device profile is given", file),
                     "measure this machine: spiritlevel calibrate -o machine.textproto\n"
                     "then add --profile machine.textproto");
  }
  const Calibration calibration = LoadProfile(named);
  AttachProfile(calibration.profile, &loaded.scenario);
  loaded.provenance.model = ProvenanceOf(model);
  loaded.provenance.profile = ProvenanceOf(calibration, named);
  return loaded;
}

Provenance WithSplits(LoadedScenario loaded, const std::vector<Result>& results) {
  if (!loaded.scenario.model) return std::move(loaded.provenance);
  std::set<int> stages;
  for (const Result& result : results) {
    if (result.summary) stages.insert(result.stages);
  }
  for (const int count : stages) {
    loaded.provenance.model->splits.push_back(
        {.stages = count, .layers_per_stage = LayersFor(loaded.scenario, count)});
  }
  return std::move(loaded.provenance);
}

}  // namespace spiritlevel
