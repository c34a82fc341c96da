// Scenario: what a user's file says, checked.
//
//   Scenario s = LoadScenario("scenarios/example.textproto");
//   CostsFor(s, schedule);
//
// Its costs are typed in, or come from a model's config and a device profile, which is no part of
// the file and is attached:
//
//   if (s.model) AttachProfile(profile, &s);
//
// A Scenario that exists can be simulated: its numbers are in range and no sum over one iteration
// overflows. Whatever is wrong with a file is an InputError of the form "FILE:LINE: FIELD: what"
// with a way out, within a second and without ever crashing; tests feed it mutated files.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/architecture.h"
#include "models/device_profile.h"
#include "models/model_costs.h"
#include "models/slices.h"
#include "sim/costs.h"
#include "sim/schedule.h"

namespace spiritlevel {

enum class Split : uint8_t {
  kEven,      // the same number of layers on every stage
  kBalanced,  // BalancedSplit(), for the ranks on which the stages lie
  kGiven,     // run.layers_per_stage
};

std::string_view Name(Split split);  // "even", "balanced", "given"

class BalancedSplits;

// Costs that follow from a model and a device.
struct ModelForm {
  std::string place;        // "FILE:LINE: model", for complaints that need a profile to be made
  std::string config_file;  // as it was opened
  Architecture architecture;
  // `stages`, `dtype` where the file gives none, and the layers of a balanced split are set for
  // each use.
  ModelRun run;
  Split split = Split::kEven;
  bool recompute_by_stage = false;  // else run.recompute is of all stages
  std::optional<DType> dtype;       // none: the profile's
  std::string dtype_place;          // "FILE:LINE: model.dtype", for whoever finds it wrong
  std::string profile_file;         // that the file names, as it is to be opened; else empty
  std::optional<DeviceProfile> profile;
  // Those that were found so far; shared by copies, and safe to share between threads.
  std::shared_ptr<BalancedSplits> splits{};
};

struct Scenario {
  std::string name;
  int ranks = 0;
  int micro_batches = 0;
  int stages_per_rank = 2;  // of the interleaved forms
  int group = 0;            // group size of the interleaved forms; 0: their default
  std::optional<Bytes> memory_limit;
  ModelSlices slices;  // typed costs; empty where there is a model
  std::optional<ModelForm> model{};
  // Legal but suspicious, each "FILE:LINE: FIELD: what".
  std::vector<std::string> warnings;
};

// Throws InputError for a profile of another dtype than the scenario's, which has a model, and for
// one with which times get so long that sums over an iteration overflow.
void AttachProfile(const DeviceProfile& profile, Scenario* scenario);

// Which stages share a rank; empty where a stage shares its rank with different ones, so that no
// rank's load is a plain sum of stages.
StageGroups GroupsOf(const Schedule& schedule);

// What a schedule of that many stages is played with; `groups` are the stages that share a rank,
// empty if none do. Only a balanced split hangs on them. Throws InputError, as the reason why it
// cannot run, where costs cannot be formed. A model has its profile attached.
Costs CostsFor(const Scenario& scenario, int stages, const StageGroups& groups = {});
Costs CostsFor(const Scenario& scenario, const Schedule& schedule);

// The same refusals, but for those of times too long; needs no profile.
void RefuseStages(const Scenario& scenario, int stages);

// Of a scenario with a model, and its profile where the split is balanced.
LayersPerStage LayersFor(const Scenario& scenario, int stages, const StageGroups& groups = {});

// Both by one schema, proto/scenario.proto.
enum class ScenarioFormat { kText, kJson };

// Told apart by the ending: .textproto, .txtpb, .pbtxt; .json.
Scenario LoadScenario(const std::filesystem::path& path);

// Files that the text names are looked for beside a file of that name.
Scenario ParseScenario(std::string_view text, ScenarioFormat format,
                       std::string_view name_for_errors);

// Bounds that keep every array within memory and every sum within int64.
inline constexpr int kMaxStages = 65'535;
inline constexpr int kMaxMicroBatches = 1 << 24;
inline constexpr int64_t kMaxStageMicroBatches = 1 << 24;
// Where micro-batches differ, each stage and micro-batch has an entry of its own.
inline constexpr int64_t kMaxTableEntries = 1 << 22;

}  // namespace spiritlevel
