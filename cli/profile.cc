#include "cli/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/utf8.h"
#include "calibrate/profile_file.h"
#include "models/assumptions.h"
#include "models/model_costs.h"

namespace spiritlevel {
namespace {

// A line of a report has room for a path; for the rest a few words are enough.
std::string Clean(const std::string& text) { return Shown(Printable(text), 200); }
std::string Brief(const std::string& text) { return Shown(Printable(text), 80); }

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
  for (std::string& line : AssumptionsOf(form.architecture, run))
    model.assumptions.push_back(std::move(line));
  model.not_modelled.assign(NotModelled().begin(), NotModelled().end());
  return model;
}

ProfileProvenance ProvenanceOf(const Calibration& calibration, const std::string& file) {
  const Errors held_out = InTotal(calibration, /*held_out=*/true);
  return {.file = Clean(file),
          .date = Brief(calibration.date),
          .cpu = Brief(calibration.machine.cpu),
          .dtype = std::string(Name(calibration.profile.dtype)),
          .library = Brief(calibration.software.blas),
          .held_out_shapes = held_out.count,
          .held_out_p90 = held_out.p90,
          .noisy = calibration.validity.noisy(),
          .left_out = calibration.left_out,
          .complete = calibration.complete};
}

// A model's config where a profile belongs is told apart by names that every config has.
bool LooksLikeAConfig(const std::string& file) {
  std::string text;
  try {
    text = ReadFile(file, size_t{16} << 20);
  } catch (const InputError&) {
    return false;
  }
  return text.find("\"model_type\"") != std::string::npos ||
         text.find("\"architectures\"") != std::string::npos;
}

}  // namespace

Calibration LoadTheProfile(const std::string& file) {
  try {
    return LoadProfile(file);
  } catch (const InputError&) {
    if (!LooksLikeAConfig(file)) throw;
    throw InputError(fmt::format("{}: this is a model's config, not a device profile", file),
                     "the scenario names the config; --profile takes what `spiritlevel calibrate "
                     "-o machine.textproto` writes");
  }
}

std::vector<std::string> FilesOf(const Scenario& scenario, const std::string& file) {
  std::vector<std::string> files = {file};
  if (!scenario.model) return files;
  files.push_back(scenario.model->config_file);
  if (!scenario.model->profile_file.empty()) files.push_back(scenario.model->profile_file);
  return files;
}

namespace {

// The message says who named a profile that cannot be read.
Calibration ProfileFor(const ModelForm& model, const std::string& profile) {
  try {
    return LoadTheProfile(profile.empty() ? model.profile_file : profile);
  } catch (const InputError& error) {
    throw error.At(profile.empty() ? model.place + ".profile" : "--profile");
  }
}

}  // namespace

LoadedScenario WithProfile(Scenario scenario, const std::string& file, const std::string& profile) {
  std::vector<std::string> files = FilesOf(scenario, file);
  if (!profile.empty()) files.push_back(profile);
  LoadedScenario loaded{
      .scenario = std::move(scenario), .provenance = {}, .files = std::move(files)};
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
  const Calibration calibration = ProfileFor(model, profile);
  try {
    AttachProfile(calibration.profile, &loaded.scenario);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{} (the profile is {})", error.problem(), Clean(named)),
                     error.way_out());
  }
  loaded.provenance.model = ProvenanceOf(model);
  loaded.provenance.profile = ProvenanceOf(calibration, named);
  return loaded;
}

namespace {

// By stages, then by layers; the placements that are cut alike in one.
std::vector<SplitUsed> SplitsOf(const std::vector<Result>& results) {
  std::map<std::pair<int, std::vector<int64_t>>, std::vector<std::string>> placements;
  for (const Result& result : results) {
    if (!result.summary) continue;
    std::vector<std::string>& names = placements[{result.stages, result.layers_per_stage}];
    if (std::find(names.begin(), names.end(), result.placement) == names.end()) {
      names.push_back(result.placement);
    }
  }
  std::vector<SplitUsed> splits;
  for (const auto& [cut, names] : placements) {
    splits.push_back({.stages = cut.first,
                      .layers_per_stage = cut.second,
                      .placement = fmt::format("{}", fmt::join(names, ", "))});
  }
  return splits;
}

std::vector<std::string> PlacementsWithEndsApart(const std::vector<Result>& results) {
  std::vector<std::string> names;
  for (const Result& result : results) {
    if (!result.summary || !result.ends_apart) continue;
    if (std::find(names.begin(), names.end(), result.placement) == names.end()) {
      names.push_back(result.placement);
    }
  }
  return names;
}

}  // namespace

Provenance WithSplits(LoadedScenario loaded, const std::vector<Result>& results) {
  if (!loaded.scenario.model) return std::move(loaded.provenance);
  ModelProvenance& model = *loaded.provenance.model;
  model.splits = SplitsOf(results);
  const std::vector<std::string> apart = PlacementsWithEndsApart(results);
  const Architecture& architecture = loaded.scenario.model->architecture;
  if (architecture.tied_embeddings && !apart.empty()) {
    model.assumptions.push_back(TiedEmbeddingLine(CountParameters(architecture).embedding,
                                                  fmt::format("{}", fmt::join(apart, ", "))));
  }
  return std::move(loaded.provenance);
}

}  // namespace spiritlevel
