#include "report/json.h"

#include "report/advice.h"
#include "report/certificate_json.h"
#include "report/figures.h"
#include "report/json_values.h"

namespace spiritlevel {
namespace {

// By rank; null where there are none.
Json LimitsOf(const Comparison& comparison) {
  if (!HasLimit(comparison)) return nullptr;
  Json limits = Json::array();
  for (int rank = 0; rank < comparison.ranks; ++rank) limits.push_back(LimitOf(comparison, rank));
  return limits;
}

Json StallsOf(const Summary& summary) {
  Json stalls = Json::object();
  for (int i = 0; i < kNumStallCategories; ++i) {
    const auto category = static_cast<StallCategory>(i);
    stalls[std::string(Name(category))] = SumOfStalls(summary, category);
  }
  return stalls;
}

// Every number of a schedule that ran; null for each where it did not.
void AddNumbers(const std::optional<Summary>& summary, Json& json) {
  const auto add = [&](const char* key, auto value_of) {
    json[key] = summary ? Json(value_of(*summary)) : Json(nullptr);
  };
  add("makespan_ns", [](const Summary& s) { return s.makespan; });
  add("max_rank_span_ns", [](const Summary& s) { return s.max_rank_span; });
  add("period_ns", [](const Summary& s) { return s.period; });
  add("step_ns", [](const Summary& s) { return s.step; });
  add("bubble_rate", [](const Summary& s) { return s.bubble_rate; });
  add("bubble_fraction", [](const Summary& s) { return s.bubble_fraction; });
  add("peak_bytes", [](const Summary& s) { return s.peak_bytes; });
  add("peak_activation_bytes", [](const Summary& s) { return s.peak_activation_bytes; });
  add("busy_ns", [](const Summary& s) { return s.stalls.busy; });
  add("stalls_ns", [](const Summary& s) { return StallsOf(s); });
  add("peak_waiting_b", [](const Summary& s) { return s.peak_waiting_b; });
  add("peak_waiting_w", [](const Summary& s) { return s.peak_waiting_w; });
  add("pp_bytes", [](const Summary& s) { return s.pp_bytes; });
  add("parameter_copies", [](const Summary& s) { return s.parameter_copies; });
}

Json RejectionOf(const std::optional<Rejection>& rejection) {
  if (!rejection) return nullptr;
  return {{"probability", rejection->probability},
          {"period_rejected_ns", rejection->period},
          {"expected_step_ns", rejection->expected}};
}

Json ResultOf(const Result& result, const Comparison& comparison) {
  Json json;
  json["schedule"] = result.schedule;
  AddNumbers(result.summary, json);
  AddCertificate(result.certificate, &json);
  json["certificate_note"] =
      result.certificate_note.empty() ? Json(nullptr) : Json(result.certificate_note);
  json["rejection"] = RejectionOf(result.rejection);
  json["fits"] = result.summary.has_value() && result.fits;
  json["valid"] = Ran(result);
  json["reason"] = result.reason;
  json["speedup_over_1f1b"] = OrNull(SpeedUp(result, comparison));
  return json;
}

Json ModelOf(const ModelProvenance& model) {
  Json splits = Json::array();
  for (const SplitUsed& split : model.splits) {
    splits.push_back({{"stages", split.stages},
                      {"placement", split.placement},
                      {"layers_per_stage", split.layers_per_stage}});
  }
  Json json;
  json["config_file"] = model.config_file;
  json["class"] = model.model_class;
  json["layers"] = model.layers;
  json["parameters"] = model.parameters;
  json["sequence_length"] = model.sequence_length;
  json["micro_batch_size"] = model.micro_batch_size;
  json["split"] = model.split;
  json["splits"] = splits;
  json["recompute"] = model.recompute;
  json["data_parallel"] = model.data_parallel;
  json["bucket_bytes"] = model.bucket_bytes;
  json["all_cores_busy"] = model.all_cores_busy;
  json["assumptions"] = model.assumptions;
  json["not_modelled"] = model.not_modelled;
  return json;
}

Json ProfileOf(const ProfileProvenance& profile) {
  Json json;
  json["file"] = profile.file;
  json["date"] = profile.date;
  json["cpu"] = profile.cpu;
  json["dtype"] = profile.dtype;
  json["library"] = profile.library;
  json["held_out_shapes"] = profile.held_out_shapes;
  json["held_out_p90"] = profile.held_out_shapes > 0 ? Json(profile.held_out_p90) : Json(nullptr);
  json["noisy"] = profile.noisy;
  json["typed_in"] = profile.typed_in();
  json["left_out"] = profile.left_out;
  json["complete"] = profile.complete;
  return json;
}

Json ProvenanceOf(const std::optional<Provenance>& provenance) {
  if (!provenance) return nullptr;
  Json json;
  json["costs"] = provenance->model ? "model" : "typed";
  json["scenario_file"] = provenance->scenario_file;
  json["model"] = provenance->model ? ModelOf(*provenance->model) : Json(nullptr);
  json["profile"] = provenance->profile ? ProfileOf(*provenance->profile) : Json(nullptr);
  return json;
}

}  // namespace

std::string ToJson(const Comparison& comparison) {
  Json json;
  json["scenario"] = comparison.scenario;
  json["ranks"] = comparison.ranks;
  json["micro_batches"] = comparison.micro_batches;
  json["memory_limit_bytes"] = OrNull(comparison.memory_limit);
  json["memory_limits_bytes"] = LimitsOf(comparison);
  json["posting"] = comparison.posting;
  json["tail"] = comparison.tail;
  json["receives"] = comparison.receives;
  json["channels"] = comparison.channels;
  json["weight_grads"] = comparison.weight_grads;
  json["rejection"] = comparison.rejection;
  json["warnings"] = comparison.warnings;
  json["results"] = Json::array();
  for (const Result& r : comparison.results) json["results"].push_back(ResultOf(r, comparison));
  json["advice"] = Advise(comparison);
  json["provenance"] = ProvenanceOf(comparison.provenance);
  // A name may come from a file that is not UTF-8; better a replaced letter than no result.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace spiritlevel
