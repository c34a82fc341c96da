// Options that compare, simulate and export share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/play.h"
#include "report/provenance.h"
#include "scenarios/scenario.h"

namespace spiritlevel {

// A scenario that can be played, and what is known of where its numbers come from.
struct LoadedScenario {
  Scenario scenario;
  Provenance provenance;
  std::vector<std::string> files{};  // that were read for it
};

struct ScenarioOptions {
  std::string file;
  std::string profile{};
  std::optional<int> group{};
  std::optional<int> stages_per_rank{};

  void AddTo(CLI::App& command);
  void AddProfileTo(CLI::App& command);
  // The scenario with the flags put over what its file says, and the profile that its model needs.
  LoadedScenario Load() const;
  // The same without a profile: enough for what only looks at orders.
  Scenario LoadWithoutProfile() const;
};

// An option that names a file: an empty name is refused, and does not pass for one left out.
void RefuseEmptyName(CLI::Option* option);

struct PlayFlags {
  std::string posting = "ideal";
  std::string receives = "early";
  std::string channels = "pair";
  std::string tail = "barrier";
  std::string weight_grads = "by-micro-batch";
  double rejection = 0;
  int64_t iterations = 1;

  void AddTo(CLI::App& command);
  // Throws InputError for a word or number that is not one of them.
  PlayOptions Parse() const;
  // Throws InputError for a flag that would do nothing on this scenario.
  void RefuseIdleOn(const Scenario& scenario) const;
};

struct MemoryLimitFlag {
  std::string text;

  void AddTo(CLI::App& command);
  // Puts what it says in place of the scenario's limit. Throws InputError for no size, and for
  // limits that differ where a page is written, which shows one.
  void Apply(bool writes_page, Scenario* scenario, PlayOptions* options) const;
};

struct ScheduleFlags {
  std::vector<std::string> names;
  std::vector<std::string> files;

  void AddTo(CLI::App& command, bool many);
  bool empty() const { return names.empty() && files.empty(); }
  // Named ones first, then files; all of the catalog if neither is given.
  std::vector<ScheduleChoice> Load() const;
  // Exactly one. Throws InputError for none or several.
  ScheduleChoice LoadOne() const;
};

// The files that were read for the two: the scenario, its model's config, its profile, schedules.
std::vector<std::string> InputFiles(const LoadedScenario& scenario, const ScheduleFlags& schedules);

}  // namespace spiritlevel
