#include "cli/verify_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace spiritlevel {
namespace {

[[noreturn]] void Refuse(const ModelForm& form, const std::string& what,
                         const std::string& way_out) {
  throw InputError(fmt::format("{}: {}", form.place, what), way_out);
}

// Which activations the kernels have; a config that names none has its class's.
bool HasActivation(const Architecture& a) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), a.activation) != names.end();
  };
  if (a.activation.empty()) return true;
  return a.gated_mlp ? is_one_of({"silu", "swish"})
                     : is_one_of({"gelu_new", "gelu_fast", "gelu_pytorch_tanh"});
}

void RefuseWhatHasNoKernels(const ModelForm& form) {
  const Architecture& a = form.architecture;
  const char* const way_out =
      "verify runs pre-norm decoders with rotated q and k, as Llama has them; compare and simulate "
      "play this model, and verify --emulate does with a profile";
  const auto refuse_if = [&](bool has, std::string_view what) {
    if (has) Refuse(form, fmt::format("there are no kernels for {}", what), way_out);
  };
  refuse_if(a.learned_positions, "learned positions");
  refuse_if(a.parallel_residual, "attention and MLP side by side");
  refuse_if(a.post_norms, "norms behind attention and MLP");
  refuse_if(a.qk_norms, "norms of q and k");
  refuse_if(a.attention_softcap || a.final_softcap, "soft-capped logits");
  refuse_if(a.norm_bias != (a.norm == NormKind::kLayer),
            "RMSNorm with a bias or LayerNorm without one");
  refuse_if(a.qkv_bias != a.attention_output_bias || a.qkv_bias != a.mlp_bias,
            "biases on some projections and not on others");
  refuse_if(
      std::any_of(a.windows.begin(), a.windows.end(), [](int64_t window) { return window != 0; }),
      "attention within a window");
  refuse_if(!HasActivation(a),
            fmt::format("{}{}", a.activation, a.gated_mlp ? " in a gated MLP" : ""));
  refuse_if(a.attention_dropout, "dropout of attention's probabilities");
  refuse_if(a.embedding_dropout || a.residual_dropout, "dropout as a config has it");
  refuse_if(form.run.stored_attention, "attention that keeps its probabilities");
  refuse_if(form.run.norm_grads_in_w, "gradients of norms in W");
}

bool Recomputes(const ModelForm& form) {
  const std::vector<Recompute>& kinds = form.run.recompute;
  const auto all = [&](Recompute kind) {
    return std::all_of(kinds.begin(), kinds.end(), [=](Recompute r) { return r == kind; });
  };
  if (kinds.empty() || all(Recompute::kNothing)) return false;
  if (all(Recompute::kFull)) return true;
  Refuse(form, "verify recomputes all stages before B, or none",
         "use recompute: \"full\" or \"none\"");
}

cpu::DType StorageOf(const ModelForm& form) {
  switch (form.dtype.value_or(form.profile ? form.profile->dtype : DType::kFloat32)) {
    case DType::kFloat32:
      return cpu::DType::kFloat32;
    case DType::kBFloat16:
      return cpu::DType::kBFloat16;
    case DType::kFloat16:
      break;
  }
  throw InputError(fmt::format("{}: there are no kernels for float16", form.dtype_place),
                   "use float32 or bfloat16");
}

cpu::ModelShape ShapeOf(const ModelForm& form) {
  const Architecture& a = form.architecture;
  return {.layers = a.layers,
          .hidden = a.hidden,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_dim = a.head_dim,
          .intermediate = a.ffn,
          .vocabulary = a.vocabulary,
          .sequence = form.run.sequence_length,
          .sequences = form.run.micro_batch_size,
          .norm = a.norm == NormKind::kRms ? cpu::NormKind::kRms : cpu::NormKind::kLayer,
          .mlp = a.gated_mlp ? cpu::MlpKind::kSwiglu : cpu::MlpKind::kGelu,
          .biases = a.qkv_bias,
          .tied_embeddings = a.tied_embeddings,
          .storage = StorageOf(form),
          .recompute = Recomputes(form)};
}

LayersPerStage SplitOf(const Scenario& scenario, int stages, const StageGroups& groups) {
  const ModelForm& form = *scenario.model;
  if (form.split == Split::kBalanced && !form.profile) {
    Refuse(form, "a balanced split hangs on times of kernels that are not known yet",
           "use split: \"even\" or layers_per_stage, or give a --profile");
  }
  return LayersFor(scenario, stages, groups);
}

// Shorter than the shortest that anybody would look at; see docs/verify.md.
constexpr float kRate = 1e-3f;

}  // namespace

TrainingTask TaskOf(const Scenario& scenario, int stages, const StageGroups& groups) {
  const ModelForm& form = *scenario.model;
  RefuseWhatHasNoKernels(form);
  if (form.run.data_parallel > 1) {
    Refuse(form, "verify runs one replica", "leave data_parallel out");
  }
  TrainingTask task{.shape = ShapeOf(form), .stages = {}, .micro_batches = scenario.micro_batches};
  int64_t first = 0;
  for (const int64_t layers : SplitOf(scenario, stages, groups)) {
    const auto number = static_cast<int>(task.stages.size());
    task.stages.push_back({.first_layer = first,
                           .layers = layers,
                           .embedding = number == 0,
                           .head = number + 1 == stages});
    first += layers;
  }
  task.adamw.rate = kRate;
  try {
    CheckTrainingTask(task);
  } catch (const InputError& error) {
    Refuse(form, error.problem(), error.way_out());
  }
  return task;
}

namespace {

double GemmFlopsOf(const std::vector<NamedKernel>& kernels) {
  double flops = 0;
  for (const NamedKernel& named : kernels) {
    if (std::holds_alternative<Gemm>(named.kernel)) flops += Flops(named.kernel);
  }
  return flops;
}

double GemmFlopsOf(const BlockWork& work, Pass pass, bool recomputes) {
  switch (pass) {
    case Pass::kF:
    case Pass::kW:
      return GemmFlopsOf(work.kernels(pass));
    case Pass::kB:
      return GemmFlopsOf(work.input_grad) + (recomputes ? GemmFlopsOf(work.forward) : 0);
    case Pass::kBW:
      return GemmFlopsOf(work, Pass::kB, recomputes) + GemmFlopsOf(work.weight_grad);
  }
  return 0;
}

}  // namespace

double GemmFlops(const Scenario& scenario, const cpu::StageRange& stage, Pass pass) {
  const ModelForm& form = *scenario.model;
  const Architecture& model = form.architecture;
  const BlockShape shape = form.run.shape();
  const bool recomputes = Recomputes(form);
  double flops = 0;
  for (int64_t layer = 0; layer < stage.layers; ++layer) {
    flops += GemmFlopsOf(LayerWork(model, shape, stage.first_layer + layer), pass, recomputes);
  }
  if (stage.head) flops += GemmFlopsOf(HeadWork(model, shape), pass, recomputes);
  return flops;
}

}  // namespace spiritlevel
