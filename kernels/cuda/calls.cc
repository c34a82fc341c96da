#include "kernels/cuda/calls.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "kernels/cuda/call_views.h"
#include "kernels/cuda/math/column_sums.h"
#include "kernels/cuda/math/sum_of_squares.h"

namespace spiritlevel::cuda {
namespace {

struct Name {
  std::string_view operator()(const Product&) const { return "product"; }
  std::string_view operator()(const Fill&) const { return "fill"; }
  std::string_view operator()(const Convert&) const { return "convert"; }
  std::string_view operator()(const Add&) const { return "add"; }
  std::string_view operator()(const AddBias&) const { return "add_bias"; }
  std::string_view operator()(const ColumnSums&) const { return "column_sums"; }
  std::string_view operator()(const SumOfSquares&) const { return "sum_of_squares"; }
  std::string_view operator()(const SwigluForward&) const { return "swiglu_forward"; }
  std::string_view operator()(const SwigluBackward&) const { return "swiglu_backward"; }
  std::string_view operator()(const GeluForward&) const { return "gelu_forward"; }
  std::string_view operator()(const GeluBackward&) const { return "gelu_backward"; }
  std::string_view operator()(const Rotate&) const { return "rotate"; }
  std::string_view operator()(const Dropout&) const { return "dropout"; }
  std::string_view operator()(const RmsNormForward&) const { return "rms_norm_forward"; }
  std::string_view operator()(const RmsNormInputGrad&) const { return "rms_norm_input_grad"; }
  std::string_view operator()(const RmsNormWeightGrad&) const { return "rms_norm_weight_grad"; }
  std::string_view operator()(const LayerNormForward&) const { return "layer_norm_forward"; }
  std::string_view operator()(const LayerNormInputGrad&) const { return "layer_norm_input_grad"; }
  std::string_view operator()(const LayerNormWeightGrad&) const { return "layer_norm_weight_grad"; }
  std::string_view operator()(const EmbeddingForward&) const { return "embedding_forward"; }
  std::string_view operator()(const EmbeddingWeightGrad&) const { return "embedding_weight_grad"; }
  std::string_view operator()(const CrossEntropyForward&) const { return "cross_entropy_forward"; }
  std::string_view operator()(const CrossEntropyBackward&) const {
    return "cross_entropy_backward";
  }
  std::string_view operator()(const AttentionForward&) const { return "attention_forward"; }
  std::string_view operator()(const AttentionBackward&) const { return "attention_backward"; }
  std::string_view operator()(const AdamWStep&) const { return "adamw_step"; }
  std::string_view operator()(const AdamWUndo&) const { return "adamw_undo"; }
};

std::string_view NameOfType(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "fp32";
    case ElementType::kBFloat16:
      return "bf16";
    case ElementType::kFloat8E4M3:
      return "fp8_e4m3";
    case ElementType::kFloat8E5M2:
      return "fp8_e5m2";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kFloat64:
      return "fp64";
  }
  return "unknown";
}

std::string Describe(const NamedView& operand) {
  const View& view = *operand.view;
  if (view.empty()) return fmt::format("{} none", operand.name);
  std::string text =
      fmt::format("{} {} [{}, {}]", operand.name, NameOfType(view.type), view.rows, view.cols);
  if (view.has_gaps()) text += fmt::format(" stride {}", view.stride);
  return text;
}

// What a call has beside views and is worth a word.
struct Remarks {
  std::string operator()(const Product& call) const {
    std::string text;
    if (call.transpose_a) text += ", a transposed";
    if (call.transpose_b) text += ", b transposed";
    return text + (call.beta == 0 ? "" : ", added to c");
  }
  std::string operator()(const AttentionForward& call) const { return Of(call.shape); }
  std::string operator()(const AttentionBackward& call) const { return Of(call.shape); }
  std::string operator()(const Rotate& call) const {
    return fmt::format(", heads of {}{}", call.head_dim, call.back ? ", back" : "");
  }
  template <typename Other>
  std::string operator()(const Other&) const {
    return "";
  }

  static std::string Of(const AttentionShape& shape) {
    return fmt::format(", {} x {} tokens, {} heads of {} over {}{}", shape.batch, shape.sequence,
                       shape.heads, shape.head_dim, shape.kv_heads, shape.causal ? ", causal" : "");
  }
};

}  // namespace

std::string_view NameOf(const Call& call) { return std::visit(Name(), call); }

std::string Describe(const Call& call) {
  std::string text(NameOf(call));
  const char* separator = ": ";
  for (const NamedView& operand : ViewsOf(call)) {
    text += std::exchange(separator, ", ") + Describe(operand);
  }
  return text + std::visit(Remarks(), call);
}

int64_t SumOfSquaresWorkspace(int64_t elements) { return NumPartialSums(elements); }

int64_t ColumnSumsWorkspace(int64_t rows, int64_t cols) { return TilesOf(rows).tiles * cols; }

}  // namespace spiritlevel::cuda
