// Scenario: what a user's file says, checked.
//
//   const Scenario s = LoadScenario("scenarios/example.textproto");
//   CostsForStages(s.slices, 2 * s.ranks);  // for a schedule with two stages a rank
//
// A Scenario that exists can be simulated: its numbers are in range and no sum over one iteration
// overflows. Whatever is wrong with a file is an InputError of the form "FILE:LINE: FIELD: what"
// with a way out, within a second and without ever crashing; tests feed it mutated files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/slices.h"

namespace spiritlevel {

struct Scenario {
  std::string name;
  int ranks = 0;
  int micro_batches = 0;
  int stages_per_rank = 2;  // of the interleaved forms
  int group = 0;            // group size of the interleaved forms; 0: their default
  std::optional<Bytes> memory_limit;
  ModelSlices slices;
  // Legal but suspicious, each "FILE:LINE: FIELD: what".
  std::vector<std::string> warnings;
};

// Both by one schema, proto/scenario.proto.
enum class ScenarioFormat { kText, kJson };

// Told apart by the ending: .textproto, .txtpb, .pbtxt; .json.
Scenario LoadScenario(const std::filesystem::path& path);

Scenario ParseScenario(std::string_view text, ScenarioFormat format,
                       std::string_view name_for_errors);

// Bounds that keep every array within memory and every sum within int64.
inline constexpr int kMaxStages = 65'535;
inline constexpr int kMaxMicroBatches = 1 << 24;
inline constexpr int64_t kMaxStageMicroBatches = 1 << 24;
// Where micro-batches differ, each stage and micro-batch has an entry of its own.
inline constexpr int64_t kMaxTableEntries = 1 << 22;

}  // namespace spiritlevel
