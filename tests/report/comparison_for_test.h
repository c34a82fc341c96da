// A comparison made from slices of a model and the catalog, as `compare` makes one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/slices.h"
#include "report/result.h"
#include "sim/program.h"

namespace spiritlevel {

struct ScenarioForTest {
  int ranks = 8;
  int micro_batches = 16;
  StageCost cost{};               // of a rank's share; its fused passes the sum of their parts
  std::vector<StageCost> rows{};  // instead of `cost`: slices of the model
  Costs::Common common{};
  std::optional<Bytes> memory_limit{};
  int stages_per_rank = 2;
  Tail tail = Tail::kBarrier;
};

// One schedule played out, with what it was played from.
struct PlayedForTest {
  Program program;
  Timeline timeline;
};

ModelSlices SlicesOf(const ScenarioForTest& scenario);
PlayedForTest Play(const ScenarioForTest& scenario, std::string_view schedule);
Result ResultOf(const ScenarioForTest& scenario, std::string_view schedule);

// All of the catalog where `schedules` is empty.
Comparison Compare(const ScenarioForTest& scenario, std::vector<std::string> schedules = {});

const Result& Find(const Comparison& comparison, std::string_view schedule);

size_t LongestLine(std::string_view text);

}  // namespace spiritlevel
