// spiritlevel model FILE: what is understood of a model's config, before anything is built on it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/profile.h"
#include "models/assumptions.h"
#include "models/hf_config.h"
#include "models/layer_ops.h"
#include "models/model_costs.h"
#include "models/parameters.h"
#include "models/stages.h"
#include "report/digits.h"
#include "scenarios/scenario.h"

namespace spiritlevel {
namespace {

using Json = nlohmann::ordered_json;

// A model and a run of it, and what was taken because nobody said otherwise.
struct Understood {
  Architecture model;
  ParameterCount count;
  ModelRun run;
  BlockWork layer;
  LayersPerStage layers_per_stage;
  std::vector<StageParameters> stages;
  std::vector<Bytes> static_bytes;
  std::vector<StageMemory> memories;
  std::vector<Bytes> peaks;  // by stage, under 1F1B
  Balance balance;
  bool by_time = false;  // of a profile; else by FLOPs
  std::vector<std::string> assumptions;
};

void AssumeAboutMemory(const Understood& u, std::vector<std::string>* lines) {
  const std::vector<std::string> of_run = AssumptionsOf(u.model, u.run);
  lines->insert(lines->end(), of_run.begin(), of_run.end());
  if (u.model.tied_embeddings && u.stages.size() > 1) {
    lines->push_back(TiedEmbeddingLine(u.count.embedding, /*placements=*/""));
  }
}

// Of F, B and W of one micro-batch, in millions, with what is run again.
std::vector<int64_t> MegaflopsByStage(const Understood& u) {
  const auto of = [](const BlockWork& work, int forwards) {
    return forwards * FlopsOf(work.forward) + FlopsOf(work.input_grad) + FlopsOf(work.weight_grad);
  };
  const Recompute recompute = u.run.recompute.front();
  const int forwards = recompute == Recompute::kNothing ? 1 : recompute == Recompute::kFull ? 2 : 3;
  std::vector<int64_t> stages;
  int64_t layer = 0;
  for (size_t i = 0; i < u.stages.size(); ++i) {
    double flops = 0;
    for (const int64_t end = layer + u.layers_per_stage[i]; layer < end; ++layer) {
      flops += of(LayerWork(u.model, u.run.shape(), layer), forwards);
    }
    if (i + 1 == u.stages.size()) flops += of(HeadWork(u.model, u.run.shape()), 1);
    stages.push_back(static_cast<int64_t>(flops / 1e6) + 1);
  }
  return stages;
}

std::vector<int64_t> TimeByStage(const Understood& u, const DeviceProfile& profile) {
  const Costs costs = CostsFromModel(u.model, u.run, profile);
  std::vector<int64_t> stages;
  for (int i = 0; i < costs.num_stages(); ++i) {
    const StageCost& cost = costs.of(i, 0);
    stages.push_back(cost.forward + cost.input_grad + cost.weight_grad);
  }
  return stages;
}

// Under 1F1B stage i holds as many micro-batches as there are stages from it on.
std::vector<Bytes> PeaksOf(const Understood& u) {
  std::vector<Bytes> peaks;
  for (size_t i = 0; i < u.stages.size(); ++i) {
    const auto held = static_cast<int64_t>(u.stages.size() - i);
    const StageMemory& memory = u.memories[i];
    peaks.push_back(u.static_bytes[i] + held * memory.after_forward +
                    *std::max_element(memory.transient.begin(), memory.transient.end()));
  }
  return peaks;
}

size_t NeediestStage(const Understood& u) {
  return static_cast<size_t>(std::max_element(u.peaks.begin(), u.peaks.end()) - u.peaks.begin());
}

Understood Understand(Architecture model, ModelRun run, const std::optional<DeviceProfile>& profile,
                      std::vector<std::string> assumptions) {
  Understood u;
  u.model = std::move(model);
  u.run = std::move(run);
  u.count = CountParameters(u.model);
  u.memories = StageMemories(u.model, u.run);
  u.layer = LayerWork(u.model, u.run.shape(), 0);
  u.layers_per_stage = StagesOf(u.model, u.run);
  u.stages = ParametersByStage(u.count, u.model.tied_embeddings, u.layers_per_stage);
  u.static_bytes = StaticBytesByStage(u.model, u.run);
  u.assumptions = u.model.assumptions;
  u.assumptions.insert(u.assumptions.end(), assumptions.begin(), assumptions.end());
  AssumeAboutMemory(u, &u.assumptions);
  u.peaks = PeaksOf(u);
  u.by_time = profile.has_value();
  u.balance = BalanceOf(profile ? TimeByStage(u, *profile) : MegaflopsByStage(u));
  return u;
}

std::string Signed(Bytes bytes) {
  return bytes < 0 ? "-" + FormatBytes(-bytes) : "+" + FormatBytes(bytes);
}

std::string Windows(const Architecture& a) {
  const auto windowed =
      std::count_if(a.windows.begin(), a.windows.end(), [](int64_t window) { return window > 0; });
  if (windowed == 0) return "";
  return fmt::format(", window of {} on {} layers",
                     *std::max_element(a.windows.begin(), a.windows.end()), windowed);
}

std::string Shape(const Architecture& a) {
  return fmt::format(
      "hidden {}, {} heads of {} ({} of keys and values){}\n"
      "{} MLP of {}, {} norms a layer ({}){}, vocabulary {}, {}{}\n",
      a.hidden, a.heads, a.head_dim, a.kv_heads, Windows(a), a.gated_mlp ? "gated" : "plain", a.ffn,
      a.norms_per_layer(), a.norm == NormKind::kRms ? "RMSNorm" : "LayerNorm",
      a.qk_norms ? ", norms of q and k" : "", a.vocabulary,
      a.tied_embeddings ? "head tied to the embedding" : "head of its own",
      a.learned_positions ? fmt::format(", {} learned positions", a.max_positions) : "");
}

std::string ParameterTable(const ParameterCount& count) {
  std::string text = "\nparameters\n";
  const auto row = [&text](const std::string& name, int64_t number) {
    text += fmt::format("  {:<34}{:>20}\n", name, Grouped(number));
  };
  row("embedding", count.embedding);
  if (count.positions > 0) row("positions", count.positions);
  row(fmt::format("{} layers", count.layers), count.layers * count.per_layer());
  row("  one layer", count.per_layer());
  for (const TensorCount& tensor : count.layer) row("    " + tensor.name, tensor.parameters);
  row("final norm", count.final_norm);
  if (count.head > 0) row("head", count.head);
  row("in all", count.total());
  return text;
}

std::string_view Word(NeededBy needed_by) {
  switch (needed_by) {
    case NeededBy::kB:
      return "B";
    case NeededBy::kW:
      return "W";
    case NeededBy::kBoth:
      return "B and W";
  }
  return "";
}

std::string ActivationTable(const Understood& u) {
  std::string text = fmt::format("\nactivations of one layer, {} x {} tokens, {}\n",
                                 u.run.micro_batch_size, u.run.sequence_length, Name(u.run.dtype));
  const Bytes after_f = KeptAfterForward(u.layer);
  const Bytes after_b = KeptAfterInputGrad(u.layer);
  text += fmt::format("  {:<34}{:>20}\n", "kept for B, from F on", FormatBytes(after_f));
  text += fmt::format("  {:<34}{:>20}\n", "kept for W, from B on", FormatBytes(after_b));
  text += fmt::format("  {:<34}{:>20}\n", "change at B", Signed(after_b - after_f));
  for (const KeptTensor& tensor : u.layer.kept) {
    text += fmt::format("    {:<38}{:>14}  from {} for {}\n", tensor.name,
                        FormatBytes(tensor.bytes), Name(tensor.made_by), Word(tensor.needed_by));
  }
  return text;
}

std::string StageTable(const Understood& u) {
  std::string text = fmt::format("\n{:>5} {:>7} {:>18} {:>12} {:>14} {:>14}\n", "stage", "layers",
                                 "parameters", "static", "kept for B", "kept for W");
  for (size_t i = 0; i < u.stages.size(); ++i) {
    text += fmt::format("{:>5} {:>7} {:>18} {:>12} {:>14} {:>14}\n", i, u.layers_per_stage[i],
                        Grouped(u.stages[i].total()), FormatBytes(u.static_bytes[i]),
                        FormatBytes(u.memories[i].after_forward),
                        FormatBytes(u.memories[i].after_input_grad));
  }
  const size_t neediest = NeediestStage(u);
  text += fmt::format(
      "stage {} holds most parameters\n"
      "stage {} needs most memory under 1f1b: {}, with {} micro-batch{} in flight\n",
      FullestStage(u.stages), neediest, FormatBytes(u.peaks[neediest]), u.stages.size() - neediest,
      u.stages.size() - neediest == 1 ? "" : "es");
  if (u.stages.size() == 1) return text;
  return text +
         fmt::format(
             "balance by {}: {:.1f} %, stage {} is the slowest; {} stages are at most {:.2f} "
             "times as fast as one\n",
             u.by_time ? "time" : "FLOPs", 100 * u.balance.share, u.balance.slowest,
             u.stages.size(), u.balance.speedup);
}

std::string ToText(const Understood& u) {
  std::string text = fmt::format("{}: {} layers, {} parameters\n", u.model.name, u.model.layers,
                                 Grouped(u.count.total()));
  text += Shape(u.model) + ParameterTable(u.count) + ActivationTable(u) + StageTable(u);
  text += "\nassumed\n";
  for (const std::string& line : u.assumptions) text += "  " + line + "\n";
  return text;
}

Json ActivationJson(const BlockWork& layer) {
  Json tensors = Json::array();
  for (const KeptTensor& tensor : layer.kept) {
    tensors.push_back({{"name", tensor.name},
                       {"bytes", tensor.bytes},
                       {"made_by", Name(tensor.made_by)},
                       {"needed_by", Word(tensor.needed_by)}});
  }
  const Bytes after_f = KeptAfterForward(layer);
  const Bytes after_b = KeptAfterInputGrad(layer);
  return {{"activation_bytes", after_f},
          {"weight_state_bytes", after_b},
          {"change_at_b_bytes", after_b - after_f},
          {"tensors", tensors}};
}

Json StagesJson(const Understood& u) {
  Json stages = Json::array();
  for (size_t i = 0; i < u.stages.size(); ++i) {
    stages.push_back({{"layers", u.layers_per_stage[i]},
                      {"parameters", u.stages[i].total()},
                      {"static_bytes", u.static_bytes[i]},
                      {"activation_bytes", u.memories[i].after_forward},
                      {"weight_state_bytes", u.memories[i].after_input_grad},
                      {"peak_1f1b_bytes", u.peaks[i]}});
  }
  return stages;
}

std::string ToJsonText(const Understood& u) {
  const Architecture& a = u.model;
  Json layer_parameters = Json::object();
  for (const TensorCount& tensor : u.count.layer) layer_parameters[tensor.name] = tensor.parameters;
  const Json json = {
      {"model", a.name},
      {"layers", a.layers},
      {"parameters", u.count.total()},
      {"parts",
       {{"embedding", u.count.embedding},
        {"positions", u.count.positions},
        {"layers", u.count.layers * u.count.per_layer()},
        {"final_norm", u.count.final_norm},
        {"head", u.count.head}}},
      {"layer_parameters", layer_parameters},
      {"hidden", a.hidden},
      {"heads", a.heads},
      {"kv_heads", a.kv_heads},
      {"head_dim", a.head_dim},
      {"ffn", a.ffn},
      {"vocabulary", a.vocabulary},
      {"tied_embeddings", a.tied_embeddings},
      {"sequence", u.run.sequence_length},
      {"micro_batch", u.run.micro_batch_size},
      {"dtype", Name(u.run.dtype)},
      {"layer", ActivationJson(u.layer)},
      {"stages", StagesJson(u)},
      {"most_parameters_stage", FullestStage(u.stages)},
      {"most_memory_stage", NeediestStage(u)},
      {"balance",
       {{"by", u.by_time ? "time" : "flops"},
        {"slowest_stage", u.balance.slowest},
        {"share", u.balance.share},
        {"speedup", u.balance.speedup}}},
      {"assumptions", u.assumptions},
  };
  return json.dump(2) + "\n";
}

template <class Parse>
auto ParsedFlag(std::string_view flag, Parse&& parse) {
  try {
    return parse();
  } catch (const InputError& error) {
    throw error.At(flag);
  }
}

struct ModelCommand {
  std::string file;
  std::optional<int64_t> sequence;
  int64_t micro_batch = 1;
  std::optional<int64_t> ranks;
  std::vector<int64_t> layers_per_stage;
  std::string dtype;
  std::string split;
  std::optional<std::string> profile;
  std::string recompute = "none";
  bool stored_attention = false;
  bool norm_grads_in_w = false;
  std::optional<std::string> json;

  void Run() const {
    const std::vector<std::string> inputs = {file, profile.value_or("")};
    const Understood understood = Load();
    CheckOutputs({{"--json", json}}, inputs);
    if (json) WriteOutput(*json, ToJsonText(understood), inputs);
    if (json.value_or("") != "-") Print(ToText(understood));
  }

  Understood Load() const {
    Architecture model = LoadConfig();
    std::vector<std::string> assumptions;
    std::optional<DeviceProfile> device;
    if (profile) device = LoadTheProfile(*profile).profile;
    ModelRun run = MakeRun(model, device, &assumptions);
    CutBalanced(model, device, &run);
    try {
      return Understand(std::move(model), std::move(run), device, std::move(assumptions));
    } catch (const InputError& error) {  // the model cannot be run so
      throw error.At(file);
    }
  }

  Architecture LoadConfig() const {
    try {
      return LoadHfConfig(file);
    } catch (const InputError& error) {
      if (!error.way_out().empty()) throw;
      throw InputError(error.problem(), "give the path of a model's config.json");
    }
  }

  void CutBalanced(const Architecture& model, const std::optional<DeviceProfile>& device,
                   ModelRun* run) const {
    if (split.empty()) return;
    if (!layers_per_stage.empty()) {
      throw InputError("--split stands beside --layers-per-stage", "give one of the two");
    }
    if (split == Name(Split::kEven)) return;
    if (split != Name(Split::kBalanced)) {
      throw InputError(fmt::format("--split: there is no split \"{}\"", split),
                       "there are even and balanced; or use --layers-per-stage 9,9,8,6");
    }
    if (!device) {
      throw InputError("--split balanced: a split by time needs a device profile",
                       "add --profile machine.textproto, or use --split even");
    }
    try {
      run->layers_per_stage = BalancedSplit(model, *run, *device);
    } catch (const InputError& error) {
      throw error.At(file);
    }
  }

  ModelRun MakeRun(const Architecture& model, const std::optional<DeviceProfile>& device,
                   std::vector<std::string>* assumptions) const {
    ModelRun run;
    run.sequence_length = sequence.value_or(0);
    if (sequence && *sequence < 1) {
      throw InputError(fmt::format("--sequence: {} is not 1 or more", *sequence),
                       "give the tokens of a sequence, or leave it out");
    }
    if (!sequence) {
      constexpr int64_t kUsual = 4096;
      run.sequence_length =
          model.max_positions > 0 ? std::min(kUsual, model.max_positions) : kUsual;
      assumptions->push_back(fmt::format("--sequence absent: taken as {}", run.sequence_length));
    }
    run.micro_batch_size = micro_batch;
    if (dtype.empty() && device) {
      run.dtype = device->dtype;
      assumptions->push_back(fmt::format("--dtype absent: the profile's, {}", Name(run.dtype)));
    } else if (dtype.empty()) {
      assumptions->push_back(fmt::format("--dtype absent: taken as {}", Name(run.dtype)));
    } else {
      run.dtype = ParsedFlag("--dtype", [&] { return ParseDType(dtype); });
    }
    run.recompute = {ParsedFlag("--recompute", [&] { return ParseRecompute(recompute); })};
    run.stored_attention = stored_attention;
    run.norm_grads_in_w = norm_grads_in_w;
    run.layers_per_stage = layers_per_stage;
    run.ranks = RanksFor(model);
    return run;
  }

  // A list alone says how many.
  int RanksFor(const Architecture& model) const {
    if (!ranks && layers_per_stage.empty()) return 1;
    const int64_t wanted = ranks.value_or(static_cast<int64_t>(layers_per_stage.size()));
    if (wanted < 1 || (layers_per_stage.empty() && wanted > model.layers)) {
      throw InputError(fmt::format("--ranks: {} is not between 1 and the {} layers of the model",
                                   wanted, model.layers),
                       "a rank has a layer or more");
    }
    return static_cast<int>(std::min<int64_t>(wanted, kMaxModelLayers));
  }
};

}  // namespace

void AddModel(CLI::App& app) {
  const auto command = std::make_shared<ModelCommand>();
  CLI::App* sub =
      app.add_subcommand("model", "Show what is understood of a Hugging Face config.json");
  sub->add_option("FILE", command->file, "config.json of the model")->required();
  sub->add_option("--sequence", command->sequence, "Tokens in a sequence (default: 4096)");
  sub->add_option("--micro-batch", command->micro_batch, "Sequences in a micro-batch")
      ->capture_default_str();
  sub->add_option("--ranks", command->ranks, "Pipeline ranks (default: 1)");
  sub->add_option("--layers-per-stage", command->layers_per_stage,
                  "Layers of each stage, as 9,9,8,6 (default: the same number on each)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--split", command->split,
                  "even, or balanced: by the times of --profile, each stage on a rank of its own");
  RefuseEmptyName(sub->add_option(
      "--profile", command->profile,
      "Device profile, for balance and a split by time (default: balance by FLOPs)"));
  sub->add_option("--dtype", command->dtype, "float32, bfloat16 or float16 (default: bfloat16)");
  sub->add_option("--recompute", command->recompute, "none, full or full-again-in-w")
      ->capture_default_str();
  sub->add_flag("--stored-attention", command->stored_attention,
                "Attention keeps its matrix of probabilities");
  sub->add_flag("--norm-grads-in-w", command->norm_grads_in_w,
                "The gradients of norms' parameters are formed in W, as in PyTorch");
  sub->add_option("--json", command->json, "Write the result as JSON to FILE (- for stdout)");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
