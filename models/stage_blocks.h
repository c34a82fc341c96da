// What a stage is made of: its blocks in model order, what they keep, and how long they take.
//
// A block is the embedding, a layer, or the head; only layers are ever run again.
//
//   const ModelBlocks model(architecture, shape);
//   const StageBlocks first = model.Stage({.first_layer = 0, .layers = 8, .embedding = true});
//   MemoryOf(first).after_forward;  // bytes
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/architecture.h"
#include "models/device_profile.h"
#include "models/layer_ops.h"
#include "models/parameters.h"
#include "sim/op.h"

namespace spiritlevel {

// What a stage does between F and W to keep less.
enum class Recompute : uint8_t {
  kNothing,
  // F keeps only the input of each layer; B runs F again and leaves for W what W needs.
  kFull,
  // The same, and nothing of F's is kept for W either: W runs F once more.
  kFullAgainInW,
};

std::string_view Name(Recompute recompute);  // "none", "full", "full-again-in-w"
Recompute ParseRecompute(std::string_view name);

struct StageBlock {
  const BlockWork* work = nullptr;
  int64_t parameters = 0;
  Recompute recompute = Recompute::kNothing;
  Bytes checkpoint = 0;  // what F keeps where the block is run again
};
using StageBlocks = std::vector<StageBlock>;

struct StagePlace {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool embedding = false;
  bool head = false;
  Recompute recompute = Recompute::kNothing;
};

// Every different block of a model once: layers are alike but for their window.
class ModelBlocks {
 public:
  ModelBlocks(const Architecture& architecture, const BlockShape& shape);
  ModelBlocks(const ModelBlocks&) = delete;  // stages point into it
  ModelBlocks& operator=(const ModelBlocks&) = delete;

  // The head of a tied model has a copy of the embedding unless the embedding is beside it.
  StageBlocks Stage(const StagePlace& place) const;

 private:
  const Architecture& architecture_;
  ParameterCount count_;
  Bytes checkpoint_;
  BlockWork embedding_;
  BlockWork head_;
  std::map<int64_t, BlockWork> layer_by_window_;
};

// Bytes a stage keeps of one micro-batch.
struct StageMemory {
  Bytes after_forward = 0;     // until B
  Bytes after_input_grad = 0;  // until W; may be more
  // By pass: the peak inside it, block by block, above what is held at its start and at its end.
  std::array<Bytes, kNumPasses> transient{};
};
StageMemory MemoryOf(const StageBlocks& stage);

// With all that is run again in the pass; of kBW, where nothing is run again twice.
double NanosecondsOf(const DeviceProfile& profile, const StageBlock& block, Pass pass);
double NanosecondsOf(const DeviceProfile& profile, const StageBlocks& stage, Pass pass);

}  // namespace spiritlevel
