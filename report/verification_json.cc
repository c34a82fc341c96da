#include "report/json_values.h"
#include "report/verification.h"

namespace spiritlevel {
namespace {

double TokensPerSecond(int64_t tokens, TimeNs step) {
  return step == 0 ? 0 : static_cast<double>(tokens) * 1e9 / static_cast<double>(step);
}

Json CategoriesOf(const MemoryByCategory& memory) {
  Json json = Json::object();
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    json[std::string(Name(static_cast<MemoryCategory>(c)))] = memory[static_cast<size_t>(c)];
  }
  return json;
}

// Emulated passes keep nothing that could be metered.
Json MemoryOf(const VerifiedSchedule& schedule, bool emulated) {
  Json ranks = Json::array();
  for (const VerifiedRank& rank : schedule.memory) {
    ranks.push_back(
        {{"ledger_peak_bytes", rank.peak.ledger},
         {"live_peak_bytes", emulated ? Json(nullptr) : Json(rank.peak.live)},
         {"most_handed_over_bytes", OrNull(rank.handed_over)},
         {"ledger_most_by_category", CategoriesOf(rank.peak.most)},
         {"live_most_by_category", rank.measured ? CategoriesOf(*rank.measured) : Json(nullptr)}});
  }
  return ranks;
}

Json PassesOf(const VerifiedSchedule& schedule) {
  Json passes = Json::array();
  for (const VerifiedPass& pass : schedule.passes) {
    passes.push_back({{"stage", pass.stage},
                      {"pass", Name(pass.pass)},
                      {"calibrated_ns", pass.calibrated},
                      {"p50_ns", pass.p50},
                      {"p95_ns", pass.p95},
                      {"samples", pass.samples},
                      {"gemm_efficiency", OrNull(pass.gemm_efficiency)}});
  }
  return passes;
}

Json ValidationOf(const VerifiedSchedule& schedule, bool emulated) {
  if (!schedule.validation) return nullptr;
  const ValidationCost& cost = *schedule.validation;
  Json json;
  const auto pair = [&](const std::string& key, const std::optional<PredictedAndMeasured>& of) {
    json[key + "_predicted_ns"] = of ? Json(of->predicted) : Json(nullptr);
    json[key + "_measured_ns"] = of ? Json(of->measured) : Json(nullptr);
  };
  pair("normal_step", cost.normal_step);
  pair("barrier_step", cost.barrier_step);
  pair("normal_path_cost", cost.normal_path);
  pair("rollback", cost.rollback);
  json["rollback_equal"] = OrNull(cost.rollback_equal);
  json["rollback_note"] = cost.rollback_note;
  json["normal_path_spread"] = cost.normal_path_spread;
  json["rollback_spread"] = cost.rollback_spread;
  json["noisy"] = cost.noisy() || schedule.noisy();
  json["memory_equals_ledger"] = emulated ? Json(nullptr) : Json(cost.memory_matches);
  return json;
}

Json WithinBar(const VerifiedSchedule& schedule, const Verification& all) {
  const BarVerdict verdict = JudgeBar(schedule, all);
  if (verdict == BarVerdict::kWithin) return true;
  if (verdict == BarVerdict::kMissed) return false;
  return nullptr;
}

// A schedule that was not run has every key too, its measured numbers null.
Json ScheduleOf(const VerifiedSchedule& schedule, const Verification& all) {
  const bool ran = schedule.ran();
  const auto number = [ran](auto value) { return ran ? Json(value) : Json(nullptr); };
  const auto pair = [&](Json& json, const std::string& key, auto predicted, auto measured,
                        const std::string& unit = "") {
    json[key + "_predicted" + unit] = number(predicted);
    json[key + "_measured" + unit] = number(measured);
  };
  Json json;
  json["schedule"] = schedule.schedule;
  json["emulated"] = all.emulated;
  json["predicted_step_ns"] = number(schedule.predicted.step);
  json["measured_step_ns"] = number(schedule.measured.step);
  json["step_error"] = number(schedule.step_error());
  json["gradients_equal"] = OrNull(schedule.gradients_equal);
  pair(json, "idle_share", schedule.predicted.idle_share, schedule.measured.idle_share);
  json["within_bar"] = WithinBar(schedule, all);
  json["noisy"] = schedule.noisy();
  json["wrong"] = WrongsOf(schedule, all);
  json["failures"] = schedule.failures;
  json["spread"] = number(schedule.spread);
  json["round_spread"] = number(schedule.round_spread());
  json["range"] = number(schedule.range());
  json["calibration_spread"] = number(schedule.calibration_spread);
  pair(json, "bubble_rate", schedule.predicted.bubble_rate, schedule.measured.bubble_rate);
  pair(json, "exposed_communication", schedule.predicted.exposed_communication,
       schedule.measured.exposed_communication, "_ns");
  pair(json, "tokens_per_second", TokensPerSecond(all.tokens_per_step, schedule.predicted.step),
       TokensPerSecond(all.tokens_per_step, schedule.measured.step));
  pair(json, "peak_waiting_b", schedule.waiting_b_predicted, OrNull(schedule.waiting_b_measured));
  pair(json, "peak_waiting_w", schedule.waiting_w_predicted, OrNull(schedule.waiting_w_measured));
  json["memory_equals_ledger"] = all.emulated ? Json(nullptr) : number(schedule.memory_matches());
  json["overlap_room_reserved_by_costs"] = number(schedule.reserves_for_pairs);
  json["memory_by_rank"] = MemoryOf(schedule, all.emulated);
  json["ledger_bytes"] = number(schedule.ledger_bytes());
  json["resident_bytes"] = OrNull(schedule.resident_bytes);
  json["resident_ratio"] = OrNull(schedule.resident_ratio());
  json["resident_within_bar"] = OrNull(schedule.resident_within_bar());
  json["passes"] = PassesOf(schedule);
  json["validation"] = ValidationOf(schedule, all.emulated);
  json["placement"] = schedule.placement;
  json["stages"] = schedule.stages;
  json["runs"] = schedule.runs;
  json["steps_ns"] = schedule.steps;
  json["round_steps_ns"] = schedule.round_steps;
  json["cold_steps_ns"] = schedule.cold_steps;
  json["valid"] = ran && schedule.findings.empty();
  json["findings"] = schedule.findings;
  json["gradients_note"] = schedule.gradients_note;
  json["reason"] = schedule.reason;
  return json;
}

Json OrderOf(const Verification& verification) {
  const OrderVerdict verdict = JudgeOrder(verification);
  Json wrong = Json::array();
  for (const auto& [faster, slower] : verdict.wrong) {
    wrong.push_back({{"faster", faster}, {"slower", slower}});
  }
  return {{"predicted", OrderPredicted(verification)},
          {"measured", OrderMeasured(verification)},
          {"pairs_that_differ", verdict.pairs},
          {"pairs_predicted_otherwise", wrong}};
}

Json BarOf(const Verification& verification) {
  const BarSummary summary = SumUpBars(verification);
  const bool emulated = verification.emulated;
  return {{"step", emulated ? kEmulatedStepBar : kStepBar},
          {"idle_share", emulated ? Json(nullptr) : Json(kIdleBar)},
          {"resident", kResidentBar},
          {"within", summary.within},
          {"missed", summary.missed},
          {"too_noisy", summary.too_noisy},
          {"resident_within", summary.resident_within},
          {"resident_missed", summary.resident_missed}};
}

}  // namespace

std::string VerificationJson(const Verification& all) {
  Json json;
  json["scenario"] = all.scenario;
  json["ranks"] = all.ranks;
  json["micro_batches"] = all.micro_batches;
  json["emulated"] = all.emulated;
  json["transport"] = all.transport;
  json["cores"] = all.cores;
  json["cpu"] = all.cpu;
  json["date"] = all.date;
  json["posting"] = all.posting;
  json["tail"] = all.tail;
  json["memory_limit_bytes"] = OrNull(all.memory_limit);
  json["micro_batch_size"] = all.micro_batch_size;
  json["sequence_length"] = all.sequence_length;
  json["tokens_per_step"] = all.tokens_per_step;
  json["iterations"] = all.iterations;
  json["rounds"] = all.rounds;
  json["costs_from"] = all.costs_from;
  json["best_gemm_flops_per_second"] = OrNull(all.best_gemm_flops);
  json["hop_latency_ns"] = all.hop_latency;
  json["calibrating_seconds"] = all.calibrating_seconds;
  json["searching_seconds"] = all.searching_seconds;
  json["running_seconds"] = all.running_seconds;
  json["interrupted"] = all.interrupted;
  json["right"] = IsRight(all);
  json["bar"] = BarOf(all);
  json["warnings"] = all.warnings;
  json["schedules"] = Json::array();
  for (const VerifiedSchedule& s : all.schedules) json["schedules"].push_back(ScheduleOf(s, all));
  json["order"] = OrderOf(all);
  // A name may come from a file that is not UTF-8; better a replaced letter than no result.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace spiritlevel
