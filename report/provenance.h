// Where a comparison's numbers come from, so that nobody takes a typed-in time for a measured one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace spiritlevel {

// "layers per stage" of the schedules with that many stages in that placement.
struct SplitUsed {
  int stages = 0;
  std::vector<int64_t> layers_per_stage{};
  std::string placement{};  // several where they are cut alike: "linear, bidirectional"
};

// The device profile, as its file describes itself.
struct ProfileProvenance {
  std::string file{};
  std::string date{};
  std::string cpu{};
  std::string dtype{};
  std::string library{};  // of the matrix products
  int held_out_shapes = 0;
  double held_out_p90 = 0;  // of |predicted - measured| / measured, over these shapes
  bool noisy = false;       // the machine did not hold still
  int left_out = 0;         // planned shapes that there was no time for
  bool complete = true;     // else it was stopped

  // Nobody measured it: it names no machine and no date.
  bool typed_in() const { return date.empty() && cpu.empty(); }
};

struct ModelProvenance {
  std::string config_file{};
  std::string model_class{};
  int64_t layers = 0;
  int64_t parameters = 0;
  int64_t sequence_length = 0;
  int64_t micro_batch_size = 0;
  std::string split{};
  std::vector<SplitUsed> splits{};       // of the placements that were played, by stages
  std::vector<std::string> recompute{};  // one for all stages, or one for each
  int data_parallel = 1;
  Bytes bucket_bytes = 0;
  bool all_cores_busy = true;
  std::vector<std::string> assumptions{};
  std::vector<std::string> not_modelled{};
};

struct Provenance {
  std::string scenario_file{};
  std::optional<ModelProvenance> model{};  // none: costs are typed into the scenario
  std::optional<ProfileProvenance> profile{};
};

// A line of "where does this come from".
struct ProvenanceLine {
  std::string label;
  std::string text;
};

std::vector<ProvenanceLine> LinesOf(const Provenance& provenance);

// "costs of config.json on AMD EPYC, float32, measured 2024-05-31 (machine.textproto)"; nothing for
// costs that are typed in, whose scenario is named already.
std::string SourceOf(const Provenance& provenance);

// What was played of the model, two lines; nothing for costs that are typed in:
//   layers 6 6 6 4 (linear); 3 3 3 3 3 3 3 1 (V)
//   micro-batches of 2 x 1024 tokens, recompute none
std::string PlayedAs(const Provenance& provenance);

// "6 x5 4" for 6 6 6 6 6 4; up to four alike are written out.
std::string ShortList(const std::vector<int64_t>& numbers);

}  // namespace spiritlevel
