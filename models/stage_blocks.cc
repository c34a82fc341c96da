#include "models/stage_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace spiritlevel {
namespace {

double KernelsOf(const DeviceProfile& profile, const BlockWork& work, Pass pass) {
  double ns = 0;
  for (const NamedKernel& k : work.kernels(pass)) ns += NanosecondsOf(profile, k.kernel);
  return ns;
}

struct BlockBytes {
  Bytes whole = 0;          // all that F makes, kept or not
  Bytes after_forward = 0;  // kept of it until B
  Bytes gradients = 0;      // that B makes for W
  Bytes after_input_grad = 0;
};

BlockBytes BytesOf(const StageBlock& block) {
  BlockBytes bytes;
  bytes.whole = KeptAfterForward(*block.work);
  bytes.after_forward = block.recompute == Recompute::kNothing ? bytes.whole : block.checkpoint;
  bytes.gradients = GradientsForW(*block.work);
  bytes.after_input_grad = block.recompute == Recompute::kFullAgainInW
                               ? block.checkpoint + bytes.gradients
                               : KeptAfterInputGrad(*block.work);
  return bytes;
}

}  // namespace

std::string_view Name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNothing:
      return "none";
    case Recompute::kFull:
      return "full";
    case Recompute::kFullAgainInW:
      return "full-again-in-w";
  }
  return "";
}

Recompute ParseRecompute(std::string_view name) {
  for (const Recompute r : {Recompute::kNothing, Recompute::kFull, Recompute::kFullAgainInW}) {
    if (name == Name(r)) return r;
  }
  throw InputError(fmt::format("there is no recomputation \"{}\"", name),
                   "there are none, full and full-again-in-w");
}

ModelBlocks::ModelBlocks(const Architecture& a, const BlockShape& shape)
    : architecture_(a), count_(CountParameters(a)) {
  CheckShape(a, shape);
  checkpoint_ = LayerInputBytes(a, shape);
  embedding_ = EmbeddingWork(a, shape);
  head_ = HeadWork(a, shape);
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (!layer_by_window_.contains(a.window(layer))) {
      layer_by_window_.emplace(a.window(layer), LayerWork(a, shape, layer));
    }
  }
}

StageBlocks ModelBlocks::Stage(const StagePlace& place) const {
  StageBlocks stage;
  if (place.embedding) {
    stage.push_back({.work = &embedding_, .parameters = count_.embedding + count_.positions});
  }
  for (int64_t i = 0; i < place.layers; ++i) {
    const int64_t window = architecture_.window(place.first_layer + i);
    stage.push_back({.work = &layer_by_window_.at(window),
                     .parameters = count_.per_layer(),
                     .recompute = place.recompute,
                     .checkpoint = checkpoint_});
  }
  if (place.head) {
    const bool copy = architecture_.tied_embeddings && !place.embedding;
    stage.push_back(
        {.work = &head_,
         .parameters = count_.final_norm + count_.head + (copy ? count_.embedding : 0)});
  }
  return stage;
}

// F goes up the blocks and B and W come down again; a block that is behind them has left what its
// next pass needs, one that lies before them still holds what its last pass left.
StageMemory MemoryOf(const StageBlocks& stage) {
  StageMemory memory;
  std::vector<BlockBytes> blocks;
  for (const StageBlock& block : stage) {
    blocks.push_back(BytesOf(block));
    memory.after_forward += blocks.back().after_forward;
    memory.after_input_grad += blocks.back().after_input_grad;
  }
  std::array<Bytes, kNumPasses> peak{};
  const auto reach = [&peak](Pass pass, Bytes bytes) {
    Bytes& highest = peak[static_cast<size_t>(pass)];
    highest = std::max(highest, bytes);
  };
  Bytes below_for_b = 0;
  Bytes below_for_w = 0;
  for (size_t i = 0; i < stage.size(); ++i) {
    const BlockBytes& block = blocks[i];
    const bool again_in_w = stage[i].recompute == Recompute::kFullAgainInW;
    const Bytes above = memory.after_input_grad - below_for_w - block.after_input_grad;
    const Bytes in_backward = below_for_b + block.whole + block.gradients;
    reach(Pass::kF, below_for_b + block.whole);
    reach(Pass::kB, in_backward + above);
    reach(Pass::kBW, in_backward);
    reach(Pass::kW,
          below_for_w + (again_in_w ? block.whole + block.gradients : block.after_input_grad));
    below_for_b += block.after_forward;
    below_for_w += block.after_input_grad;
  }
  const auto above = [&](Pass pass, Bytes level) {
    const auto p = static_cast<size_t>(pass);
    memory.transient[p] = std::max<Bytes>(0, peak[p] - level);
  };
  above(Pass::kF, memory.after_forward);
  above(Pass::kB, std::max(memory.after_forward, memory.after_input_grad));
  above(Pass::kW, memory.after_input_grad);
  above(Pass::kBW, memory.after_forward);
  return memory;
}

double NanosecondsOf(const DeviceProfile& profile, const StageBlock& block, Pass pass) {
  const auto of = [&](Pass p) { return KernelsOf(profile, *block.work, p); };
  const bool again = block.recompute != Recompute::kNothing;
  switch (pass) {
    case Pass::kF:
      return of(Pass::kF);
    case Pass::kB:
      return of(Pass::kB) + (again ? of(Pass::kF) : 0);
    case Pass::kW:
      return of(Pass::kW) + (block.recompute == Recompute::kFullAgainInW ? of(Pass::kF) : 0);
    case Pass::kBW:
      return of(Pass::kB) + of(Pass::kW) + (again ? of(Pass::kF) : 0);
  }
  return 0;
}

double NanosecondsOf(const DeviceProfile& profile, const StageBlocks& stage, Pass pass) {
  double ns = 0;
  for (const StageBlock& block : stage) ns += NanosecondsOf(profile, block, pass);
  return ns;
}

}  // namespace spiritlevel
