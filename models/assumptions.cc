#include "models/assumptions.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/stages.h"

namespace spiritlevel {

std::vector<std::string> AssumptionsOf(const ModelRun& run) {
  const TrainingBytes bytes = BytesPerParameter(run.dtype);
  return {
      run.stored_attention
          ? "attention writes its probabilities to memory and keeps them"
          : "attention keeps no matrix of probabilities, only a log-sum-exp per row",
      run.norm_grads_in_w ? "the gradients of all parameters are formed in W"
                          : "the gradients of norms' parameters are formed in B, all others in W",
      fmt::format("a parameter takes {} bytes: {} itself, {} its gradient, {} for {}Adam's moments "
                  "in float32",
                  bytes.total(), bytes.parameter, bytes.gradient, bytes.optimizer,
                  run.dtype == DType::kFloat32 ? "" : "a master copy and "),
  };
}

std::vector<std::string> AssumptionsOf(const Architecture& architecture, const ModelRun& run) {
  std::vector<std::string> lines = AssumptionsOf(run);
  if (architecture.norm == NormKind::kLayer) {
    lines.push_back("a LayerNorm takes the time of an RMSNorm of that size");
  }
  if (!architecture.gated_mlp) {
    lines.push_back("a GELU takes, for each byte it moves, the time of a gated MLP's activation");
  }
  if (architecture.attention_softcap) {
    lines.push_back("the soft cap of attention's scores takes no time of its own");
  }
  const bool windowed =
      std::any_of(architecture.windows.begin(), architecture.windows.end(),
                  [&](int64_t window) { return window > 0 && window < run.sequence_length; });
  if (windowed) {
    lines.push_back(
        "attention with a window takes, for each pair it needs, the time of attention without");
  }
  return lines;
}

std::string TiedEmbeddingLine(int64_t parameters, std::string_view placements) {
  return fmt::format(
      "the tied embedding is held on the first and on the last stage{}{}: {} parameters more",
      placements.empty() ? "" : ", placement ", placements, parameters);
}

}  // namespace spiritlevel
