// A gate's record as JSON. What is read may be anything: cut off, merged by hand, of another
// program.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "report/gate.h"

namespace spiritlevel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "spiritlevel gate baseline";
constexpr int kVersion = 1;
constexpr int64_t kMostFigure = int64_t{1} << 62;

Json FigureOf(GateMetric metric, const std::optional<int64_t>& value) {
  if (!value) return nullptr;
  if (!IsRate(metric)) return *value;
  return static_cast<double>(*value) / static_cast<double>(kGateRateUnit);
}

Json EntryOf(const GateEntry& entry) {
  Json json;
  json["schedule"] = entry.schedule;
  json["valid"] = entry.valid;
  json["fits"] = entry.fits;
  for (int i = 0; i < kNumGateMetrics; ++i) {
    const auto metric = static_cast<GateMetric>(i);
    json[std::string(Name(metric))] = FigureOf(metric, entry.figure(metric));
  }
  return json;
}

// Walks a file and says, at the first thing that is not as it should be, where.
class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  GateRecord Read(std::string_view text) {
    const Json json = Parse(text);
    GateRecord record;
    for (const auto& [flag, word] :
         Field(json, "settings", &Json::is_object, "an object").items()) {
      if (!word.is_string()) Refuse("settings." + flag, "is not text");
      record.settings[flag] = word.get<std::string>();
    }
    std::set<std::string> names;
    for (const Json& one : List(json, "scenarios")) {
      record.scenarios.push_back(Scenario(one));
      where_.clear();
      if (!names.insert(record.scenarios.back().name).second) {
        Refuse("scenarios", fmt::format("\"{}\" stands twice", record.scenarios.back().name));
      }
    }
    return record;
  }

 private:
  [[noreturn]] void Refuse(const std::string& field, const std::string& what) const {
    throw InputError(fmt::format("{}: {}{}: {}", name_, where_, field, what),
                     "fetch the committed file again, or delete it and write a new one with "
                     "`gate ... --update`");
  }

  Json Parse(std::string_view text) const {
    Json json;
    std::vector<std::set<std::string>> keys;  // of the objects that are open
    std::string twice;
    const auto watch = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event != Json::parse_event_t::key) return true;
      const auto key = parsed.get<std::string>();
      if (!keys.back().insert(key).second && twice.empty()) twice = key;
      return true;
    };
    try {
      json = Json::parse(text, watch);
    } catch (const Json::exception&) {
      throw InputError(fmt::format("{}: is not JSON", name_),
                       "a conflict left by a merge, or a file cut off? fetch the committed one "
                       "again");
    }
    // Which of the two would count is nowhere said; after a merge it may be the wrong one.
    if (!twice.empty()) {
      throw InputError(fmt::format("{}: \"{}\" stands twice in one object", name_, Shown(twice)),
                       "a conflict left by a merge? fetch the committed one again");
    }
    const bool ours = json.is_object() && json.contains("format") && json["format"] == kFormat;
    if (!ours) {
      throw InputError(fmt::format("{}: is no baseline of the gate", name_),
                       "`gate ... --baseline FILE --update` writes one to a file that is not there "
                       "yet");
    }
    if (!json.contains("version") || json["version"] != kVersion) {
      throw InputError(
          fmt::format("{}: is of version {}; this program knows version {}", name_,
                      json.contains("version") ? json["version"].dump() : "none", kVersion),
          "use the program that wrote it, or delete it and write a new one with `gate ... "
          "--update`");
    }
    return json;
  }

  const Json& Field(const Json& json, const char* key, bool (Json::*is)() const noexcept,
                    std::string_view kind) const {
    if (!json.is_object() || !json.contains(key)) Refuse(key, "is missing");
    const Json& field = json[key];
    if (!(field.*is)()) Refuse(key, fmt::format("is not {}", kind));
    return field;
  }

  const Json& List(const Json& json, const char* key) const {
    const Json& list = Field(json, key, &Json::is_array, "a list");
    if (list.empty()) Refuse(key, "has nothing to compare with");
    return list;
  }

  int Count(const Json& json, const char* key) const {
    const Json& field = Field(json, key, &Json::is_number_integer, "a whole number");
    const auto number = field.get<int64_t>();
    if (number < 1 || number > (1 << 30)) Refuse(key, fmt::format("{} cannot be", number));
    return static_cast<int>(number);
  }

  GateScenario Scenario(const Json& json) {
    GateScenario scenario;
    where_ = "scenarios: ";
    scenario.name = Field(json, "scenario", &Json::is_string, "text").get<std::string>();
    where_ = scenario.name + ": ";
    scenario.ranks = Count(json, "ranks");
    scenario.micro_batches = Count(json, "micro_batches");
    scenario.profile = Profile(json);
    std::set<std::string> names;
    for (const Json& one : List(json, "results")) {
      scenario.entries.push_back(Entry(one, scenario.name));
      if (names.insert(scenario.entries.back().schedule).second) continue;
      Refuse("schedule", "stands twice");
    }
    return scenario;
  }

  std::string Profile(const Json& json) const {
    if (!json.contains("profile")) Refuse("profile", "is missing");
    const Json& field = json["profile"];
    if (field.is_null()) return "";
    if (!field.is_string() || field.get<std::string>().empty()) Refuse("profile", "is no digest");
    return field.get<std::string>();
  }

  GateEntry Entry(const Json& json, const std::string& scenario) {
    GateEntry entry;
    where_ = scenario + ": ";
    entry.schedule = Field(json, "schedule", &Json::is_string, "text").get<std::string>();
    where_ += entry.schedule + ": ";
    entry.valid = Field(json, "valid", &Json::is_boolean, "true or false").get<bool>();
    entry.fits = Field(json, "fits", &Json::is_boolean, "true or false").get<bool>();
    if (entry.fits && !entry.valid) Refuse("fits", "what is not valid does not fit");
    for (int i = 0; i < kNumGateMetrics; ++i) {
      const auto metric = static_cast<GateMetric>(i);
      entry.figure(metric) = Figure(json, metric);
      // Only the gap may be unknown of what ran.
      if (entry.valid && !entry.figure(metric) && metric != GateMetric::kCertificateGap) {
        Refuse(std::string(Name(metric)), "is null, and the schedule is said to be valid");
      }
    }
    return entry;
  }

  std::optional<int64_t> Figure(const Json& json, GateMetric metric) const {
    const std::string key(Name(metric));
    if (!json.contains(key)) Refuse(key, "is missing");
    const Json& field = json[key];
    if (field.is_null()) return {};
    if (IsRate(metric)) {
      if (!field.is_number()) Refuse(key, "is no number");
      const auto share = field.get<double>();
      if (!(share >= 0 && share <= 1e9)) Refuse(key, "is no rate");
      return GateRate(share);
    }
    if (!field.is_number_integer()) Refuse(key, "is no whole number");
    const bool too_large =
        field.is_number_unsigned() && field.get<uint64_t>() > static_cast<uint64_t>(kMostFigure);
    if (too_large || field.get<int64_t>() < 0) Refuse(key, "is out of range");
    return field.get<int64_t>();
  }

  std::string name_;
  std::string where_;  // "scenario: schedule: "
};

}  // namespace

std::string ToJson(const GateRecord& record) {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["settings"] = record.settings;
  json["scenarios"] = Json::array();
  for (const GateScenario& scenario : record.scenarios) {
    Json one;
    one["scenario"] = scenario.name;
    one["ranks"] = scenario.ranks;
    one["micro_batches"] = scenario.micro_batches;
    one["profile"] = scenario.profile.empty() ? Json(nullptr) : Json(scenario.profile);
    one["results"] = Json::array();
    for (const GateEntry& entry : scenario.entries) one["results"].push_back(EntryOf(entry));
    json["scenarios"].push_back(std::move(one));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

GateRecord ReadGateRecord(std::string_view json, std::string_view name) {
  return Reader(name).Read(json);
}

}  // namespace spiritlevel
