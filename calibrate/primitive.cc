#include "calibrate/primitive.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

using P = Primitive;

constexpr std::array<PrimitiveInfo, kNumPrimitives> kPrimitives = {{
    {P::kGemmForward, "gemm_forward", "FLOP", "Y = X W of a linear layer, no bias; cold operands"},
    {P::kGemmInputGrad, "gemm_input_grad", "FLOP", "dX = dY W^T of a linear layer; cold operands"},
    {P::kGemmWeightGrad, "gemm_weight_grad", "FLOP",
     "dW += X^T dY of a linear layer, no bias; cold operands"},
    {P::kAttentionForward, "attention_forward", "FLOP",
     "softmax(Q K^T) V by tiles, without projections and rotation; FLOP under the mask"},
    {P::kAttentionBackward, "attention_backward", "FLOP",
     "dQ, dK and dV, scores made again by tiles; FLOP are twice those of the forward"},
    {P::kNormForward, "norm_forward", "byte of a row",
     "one row of RMSNorm; bytes of its input and output"},
    {P::kNormInputGrad, "norm_input_grad", "byte of a row",
     "one row of RMSNorm, gradient of its input alone; bytes of inputs and outputs"},
    {P::kNormWeightGrad, "norm_weight_grad", "byte of a row",
     "one row of RMSNorm, gradient of its weights alone; bytes of inputs"},
    {P::kElementwise, "elementwise", "byte",
     "SwiGLU forward, which stands for what streams through memory; bytes read and written"},
    {P::kEmbeddingForward, "embedding_forward", "byte of a row",
     "one row copied from a large table; bytes read and written"},
    {P::kEmbeddingBackward, "embedding_backward", "byte of a row",
     "a gradient added to one row of a large table; bytes read and written"},
    {P::kLossForward, "loss_forward", "byte",
     "cross entropy of logits that are there, without the product of the head; bytes of logits"},
    {P::kLossBackward, "loss_backward", "byte",
     "logits replaced by their gradient, without the product of the head; bytes read and written"},
    {P::kOptimizer, "optimizer", "parameter",
     "sum of squares for the norm, clipping and AdamW, float32; no reduction between ranks"},
    {P::kHandOver, "hand_over", "byte",
     "one way of a tensor between two ranks, half of a round trip: signals and a copy, cold"},
}};

SizeFit DeviceProfile::*MemberOf(P primitive) {
  switch (primitive) {
    case P::kAttentionForward:
      return &DeviceProfile::attention_forward;
    case P::kAttentionBackward:
      return &DeviceProfile::attention_backward;
    case P::kNormForward:
      return &DeviceProfile::norm_forward;
    case P::kNormInputGrad:
      return &DeviceProfile::norm_input_grad;
    case P::kNormWeightGrad:
      return &DeviceProfile::norm_weight_grad;
    case P::kElementwise:
      return &DeviceProfile::elementwise;
    case P::kEmbeddingForward:
      return &DeviceProfile::embedding_forward;
    case P::kEmbeddingBackward:
      return &DeviceProfile::embedding_backward;
    case P::kLossForward:
      return &DeviceProfile::loss_forward;
    case P::kLossBackward:
      return &DeviceProfile::loss_backward;
    default:
      return nullptr;
  }
}

// The first three primitives are the uses of a product, in the same order.
size_t UseOf(P primitive) { return static_cast<size_t>(primitive); }

}  // namespace

std::span<const PrimitiveInfo> Primitives() { return kPrimitives; }

const PrimitiveInfo& InfoOf(P primitive) {
  const PrimitiveInfo& info = kPrimitives[static_cast<size_t>(primitive)];
  SPIRITLEVEL_CHECK(info.primitive == primitive, "the table is in the order of the enumeration");
  return info;
}

const PrimitiveInfo* FindPrimitive(std::string_view name) {
  for (const PrimitiveInfo& info : kPrimitives) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

bool IsProduct(P primitive) { return primitive <= P::kGemmWeightGrad; }

bool MayBeLine(P primitive) { return !IsProduct(primitive); }

bool MayBeCurve(P primitive) { return primitive != P::kOptimizer && primitive != P::kHandOver; }

SizeFit FitOf(const DeviceProfile& profile, P primitive) {
  if (IsProduct(primitive)) {
    return {.line = {}, .curve = profile.gemm[UseOf(primitive)]};
  }
  if (primitive == P::kHandOver) {
    return {.line = {.base_ns = profile.transfer_latency_ns,
                     .per_unit_ns = profile.transfer_ns_per_byte},
            .curve = {}};
  }
  if (primitive == P::kOptimizer) return {.line = profile.optimizer, .curve = {}};
  return profile.*MemberOf(primitive);
}

void SetFit(DeviceProfile* profile, P primitive, SizeFit fit) {
  SPIRITLEVEL_CHECK(fit.is_curve() ? MayBeCurve(primitive) : MayBeLine(primitive),
                    "a fit is of a form that its primitive may have");
  if (IsProduct(primitive)) {
    profile->gemm[UseOf(primitive)] = std::move(fit.curve);
  } else if (primitive == P::kHandOver) {
    profile->transfer_latency_ns = fit.line.base_ns;
    profile->transfer_ns_per_byte = fit.line.per_unit_ns;
  } else if (primitive == P::kOptimizer) {
    profile->optimizer = fit.line;
  } else {
    profile->*MemberOf(primitive) = std::move(fit);
  }
}

GemmPadding PaddingOf(const DeviceProfile& profile, P primitive) {
  SPIRITLEVEL_CHECK(IsProduct(primitive), "only products have a padding");
  return profile.gemm_padding[UseOf(primitive)];
}

void SetPadding(DeviceProfile* profile, P primitive, const GemmPadding& padding) {
  SPIRITLEVEL_CHECK(IsProduct(primitive), "only products have a padding");
  profile->gemm_padding[UseOf(primitive)] = padding;
}

}  // namespace spiritlevel
