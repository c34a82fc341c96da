#include "models/assumptions.h"

#include <fmt/format.h>

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

}  // namespace spiritlevel
