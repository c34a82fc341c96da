#include "report/provenance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report/digits.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

std::string Known(const std::string& text) { return text.empty() ? "unknown" : text; }

std::string MeasuredAs(const ProfileProvenance& profile) {
  if (profile.typed_in()) return fmt::format("a profile that was typed in, {}", profile.dtype);
  return fmt::format("measured {} on {}, {}, {}", Known(profile.date), Known(profile.cpu),
                     profile.dtype, Known(profile.library));
}

std::string ErrorsOf(const ProfileProvenance& profile) {
  std::string error = profile.held_out_shapes == 0
                          ? "the profile does not say"
                          : fmt::format(
                                "nine in ten of {} shapes that no fit has seen are "
                                "predicted within {}",
                                profile.held_out_shapes, Percent(profile.held_out_p90));
  if (profile.noisy) error += "; the machine was noisy while it was measured";
  return error;
}

void AddProfile(const ProfileProvenance& profile, std::vector<ProvenanceLine>* lines) {
  lines->push_back({"profile", fmt::format("{}, {}", profile.file, MeasuredAs(profile))});
  lines->push_back({"error of kernels", ErrorsOf(profile)});
  if (profile.complete && profile.left_out == 0) return;
  lines->push_back(
      {"not measured",
       fmt::format("{} shapes that were planned{}", profile.left_out,
                   profile.complete ? ", for want of time" : ": the measurement was stopped")});
}

void AddSplits(const ModelProvenance& model, std::vector<ProvenanceLine>* lines) {
  for (const SplitUsed& split : model.splits) {
    lines->push_back(
        {fmt::format("{} stages", split.stages),
         fmt::format("{} split, layers {}{}", model.split, fmt::join(split.layers_per_stage, " "),
                     split.placement.empty() ? "" : fmt::format(" ({})", split.placement))});
  }
}

void AddModel(const ModelProvenance& model, std::vector<ProvenanceLine>* lines) {
  lines->push_back(
      {"model", fmt::format("{}, {} layers, {} parameters, from {}", model.model_class,
                            model.layers, Grouped(model.parameters), model.config_file)});
  lines->push_back({"micro-batch",
                    fmt::format("{} x {} tokens", model.micro_batch_size, model.sequence_length)});
  AddSplits(model, lines);
  lines->push_back({"recompute", fmt::format("{}", fmt::join(model.recompute, " "))});
  if (model.data_parallel > 1) {
    lines->push_back(
        {"data parallel", fmt::format("{} replicas, gradients in buckets of {}",
                                      model.data_parallel, FormatMemory(model.bucket_bytes))});
  }
  if (!model.all_cores_busy) {
    lines->push_back({"cores", "each rank computes as if the other cores were idle"});
  }
}

}  // namespace

std::vector<ProvenanceLine> LinesOf(const Provenance& provenance) {
  std::vector<ProvenanceLine> lines;
  if (!provenance.model) {
    lines.push_back({"costs", fmt::format("typed into {}; not measured on this machine",
                                          provenance.scenario_file)});
    return lines;
  }
  lines.push_back(
      {"costs", fmt::format("of the model that {} names, from kernels' times in the profile",
                            provenance.scenario_file)});
  AddModel(*provenance.model, &lines);
  if (provenance.profile) AddProfile(*provenance.profile, &lines);
  for (const std::string& line : provenance.model->assumptions) lines.push_back({"assumed", line});
  for (const std::string& line : provenance.model->not_modelled) {
    lines.push_back({"not modelled", line});
  }
  return lines;
}

std::string SourceOf(const Provenance& provenance) {
  if (!provenance.model || !provenance.profile) return "";
  const ProfileProvenance& profile = *provenance.profile;
  if (profile.typed_in()) {
    return fmt::format("costs of {} on a profile that was typed in, {} ({})",
                       provenance.model->config_file, profile.dtype, profile.file);
  }
  return fmt::format("costs of {} on {}, {}, measured {} ({})", provenance.model->config_file,
                     Known(profile.cpu), profile.dtype, Known(profile.date), profile.file);
}

std::string ShortList(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i;
    while (end < numbers.size() && numbers[end] == numbers[i]) ++end;
    const size_t alike = end - i;
    for (size_t k = 0; k < (alike > 4 ? 1 : alike); ++k) {
      text += fmt::format("{}{}", text.empty() ? "" : " ", numbers[i]);
    }
    if (alike > 4) text += fmt::format(" x{}", alike);
    i = end;
  }
  return text;
}

std::string PlayedAs(const Provenance& provenance) {
  if (!provenance.model) return "";
  const ModelProvenance& model = *provenance.model;
  std::string text;
  for (const SplitUsed& split : model.splits) {
    text += text.empty() ? "layers " : "; ";
    text += ShortList(split.layers_per_stage);
    if (!split.placement.empty()) text += fmt::format(" ({})", split.placement);
  }
  if (!text.empty()) text += "\n";
  text += fmt::format("micro-batches of {} x {} tokens, recompute {}", model.micro_batch_size,
                      model.sequence_length, fmt::join(model.recompute, " "));
  if (model.data_parallel > 1) text += fmt::format(", {} replicas", model.data_parallel);
  return text;
}

}  // namespace spiritlevel
